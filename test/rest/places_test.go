package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/rest/wire"
)

// waitsLong and waitsBriefly are bodies of requests for a lock. Another purpose makes another request.
const (
	waitsLong    = `{"ttl_seconds":600,"wait_seconds":50}`
	waitsBriefly = `{"ttl_seconds":600,"wait_seconds":0.3}`
	otherPurpose = `{"ttl_seconds":600,"wait_seconds":50,"reason":"another"}`
)

const (
	bobsKey  = "0123456789abcdef"
	otherKey = "fedcba9876543210"
)

var _ = Describe("A place in line", func() {
	var alice, bob, carol caller
	BeforeEach(func(ctx context.Context) {
		alice, bob, carol = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...), worker(ctx, "carol", everything...)
	})

	// awaitLine waits until those wait, the next one first.
	awaitLine := func(ctx context.Context, want ...string) {
		GinkgoHelper()
		Eventually(func() (names []string) {
			var listed wire.Waiters
			Expect(json.Unmarshal(alice.do(ctx, http.MethodGet, "/k/waiters", "").body, &listed)).To(Succeed())
			for _, waiter := range listed.Waiters {
				names = append(names, waiter.Holder[len("system:serviceaccount:"+namespace+":"):])
			}
			return names
		}).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Equal(want))
	}

	// post sends a request for the lock that waits.
	post := func(ctx context.Context, from caller, body string, headers ...string) <-chan wire.Lock {
		GinkgoHelper()
		granted := make(chan wire.Lock, 1)
		go func() {
			defer GinkgoRecover()
			defer close(granted)
			answered := from.do(ctx, http.MethodPost, "/k", body, headers...)
			Expect(answered.status).To(Equal(http.StatusCreated), "%s", answered.body)
			granted <- answered.lock()
		}()
		return granted
	}

	release := func(ctx context.Context, from caller, held wire.Lock) {
		GinkgoHelper()
		Expect(from.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
	}

	DescribeTable("is kept after a wait through the REST door has ended",
		func(ctx context.Context, body, idempotencyKey string, isKept bool) {
			first := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":600}`).lock()
			headers := func(idempotencyKey string) []string {
				if idempotencyKey == "" {
					return nil
				}
				return []string{"Idempotency-Key", idempotencyKey}
			}
			ended := bob.do(ctx, http.MethodPost, "/k", waitsBriefly, "Idempotency-Key", bobsKey)
			Expect(ended.status).To(Equal(http.StatusLocked), "%s", ended.body)
			carols := post(ctx, carol, waitsLong)
			awaitLine(ctx, "carol")
			bobs := post(ctx, bob, body, headers(idempotencyKey)...)
			order, got := []caller{carol, bob}, []<-chan wire.Lock{carols, bobs}
			if isKept {
				awaitLine(ctx, "bob", "carol")
				order, got = []caller{bob, carol}, []<-chan wire.Lock{bobs, carols}
			} else {
				awaitLine(ctx, "carol", "bob")
			}
			release(ctx, alice, first)
			for index, next := range order {
				var held wire.Lock
				Eventually(got[index]).WithTimeout(patience).Should(Receive(&held))
				release(ctx, next, held)
			}
		},
		Entry("for the same request", waitsLong, bobsKey, true),
		Entry("not for another body", otherPurpose, bobsKey, false),
		Entry("not for another Idempotency-Key", waitsLong, otherKey, false),
		Entry("not for a request without one", waitsLong, "", false),
	)

	DescribeTable("is kept after a wait through the Forrst door has ended",
		func(ctx context.Context, name, owner string, isKept bool) {
			ask := func(from caller, owner string, block int) <-chan string {
				code := make(chan string, 1)
				go func() {
					defer GinkgoRecover()
					_, problem := from.callForrst(ctx, "acquire", fmt.Sprintf(`{"key":"k","owner":%q,"ttl":{"value":1,"unit":"minute"},"block":{"value":%d,"unit":"millisecond"}}`, owner, block))
					code <- problem
				}()
				return code
			}
			end := func(from caller, owner string) {
				GinkgoHelper()
				from.forrst(ctx, "release", fmt.Sprintf(`{"key":"lock:k","owner":%q}`, owner))
			}
			Eventually(ask(alice, "first", 0)).WithTimeout(patience).Should(Receive(BeEmpty()))
			Eventually(ask(bob, "build-17", 300)).WithTimeout(patience).Should(Receive(Equal("LOCK_TIMEOUT")))
			carols := ask(carol, "build-18", 50_000)
			awaitLine(ctx, "carol")
			again := map[string]caller{"bob": bob, "alice": alice}[name]
			repeated := ask(again, owner, 50_000)
			if isKept {
				awaitLine(ctx, name, "carol")
				end(alice, "first")
				Eventually(repeated).WithTimeout(patience).Should(Receive(BeEmpty()))
				end(again, owner)
				Eventually(carols).WithTimeout(patience).Should(Receive(BeEmpty()))
				return
			}
			awaitLine(ctx, "carol", name)
			end(alice, "first")
			Eventually(carols).WithTimeout(patience).Should(Receive(BeEmpty()))
			end(carol, "build-18")
			Eventually(repeated).WithTimeout(patience).Should(Receive(BeEmpty()))
		},
		Entry("for the same owner token", "bob", "build-17", true),
		Entry("not for another owner token", "bob", "build-19", false),
		Entry("not for another identity with that owner token", "alice", "build-17", false),
	)
})
