package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// latest is how long after its cause a page may be told an event.
const latest = 200 * time.Millisecond

const ofMinutes = `{"ttl_seconds":600}`

// tellAll has all that can happen to a lock happen some times, each of which two streams of a page must tell next, and returns
// how long after its cause a page was told each event. The last lock of a round expires after the ttl.
func tellAll(ctx context.Context, key string, rounds int, ttl time.Duration) map[string][]time.Duration {
	GinkgoHelper()
	p := openPage(map[string]string{"lock": locks + "/" + key + "?watch=true", "namespace": locks + "?watch=true&prefix=" + key})
	for _, stream := range []string{"lock", "namespace"} {
		Expect(p.next(stream).Type).To(Equal("sync"))
	}
	delays := map[string][]time.Duration{}
	// The time counts from the answer to the writer, or from the expiry.
	expect := func(name string, since time.Time) {
		GinkgoHelper()
		for _, stream := range []string{"lock", "namespace"} {
			event := p.next(stream)
			Expect(event.Type).To(Equal(name))
			Expect(event.Data.Lock.Key).To(Equal(key))
			delays[name] = append(delays[name], time.UnixMilli(event.At).Sub(since))
		}
	}
	const ofWaiter = `{"ttl_seconds":600,"wait_seconds":50}`
	for range rounds {
		// The lock of the round before may be kept a moment after its expiry.
		held := served.acquire(ctx, key, ofWaiter)
		expect("acquired", held.at)
		renewed := served.call(ctx, http.MethodPut, locks+"/"+key, ofMinutes, held.lock.LockToken)
		Expect(renewed.status).To(Equal(http.StatusOK), renewed.text)
		expect("renewed", renewed.at)
		waiting := make(chan reply, 1)
		go func() {
			defer GinkgoRecover()
			waiting <- served.acquire(ctx, key, ofWaiter)
		}()
		Eventually(func() string { return served.call(ctx, http.MethodGet, locks+"/"+key+"/waiters", "", "").text }).
			WithTimeout(patience).Should(ContainSubstring(`"place":1`))
		released := served.call(ctx, http.MethodDelete, locks+"/"+key, "", held.lock.LockToken)
		Expect(released.status).To(Equal(http.StatusNoContent), released.text)
		expect("handed-off", released.at)
		next := <-waiting
		released = served.call(ctx, http.MethodDelete, locks+"/"+key, "", next.lock.LockToken)
		Expect(released.status).To(Equal(http.StatusNoContent), released.text)
		expect("released", released.at)
		brief := served.acquire(ctx, key, fmt.Sprintf(`{"ttl_seconds":%g}`, ttl.Seconds()))
		expect("acquired", brief.at)
		expect("expired", brief.expiry())
	}
	return delays
}

var _ = Describe("An EventSource", func() {
	It("is told that a lock is acquired, renewed, handed off, released, or expires", func(ctx context.Context) {
		tellAll(ctx, "flag:told", 1, 5*time.Second)
	})

	It("is told within 200 ms that a lock is acquired, renewed, handed off, released, or expires", Label("timing"), func(ctx context.Context) {
		delays := tellAll(ctx, "flag:timed", 5, 500*time.Millisecond)
		for _, name := range []string{"acquired", "renewed", "handed-off", "released", "expired"} {
			slices.Sort(delays[name])
			AddReportEntry(fmt.Sprintf("%s: median %v, longest %v of %d", name, delays[name][len(delays[name])/2], slices.Max(delays[name]), len(delays[name])))
			Expect(slices.Max(delays[name])).To(BeNumerically("<=", latest), name)
		}
	})

	for how, end := range map[string]func(){
		"stopped": func() { served.session.Terminate().Wait(patience) },
		"killed":  func() { served.session.Kill().Wait(patience) },
	} {
		It("goes on by itself after the façade was "+how+" and started again, and knows what happened meanwhile", func(ctx context.Context) {
			named := func(keys ...string) []string {
				for i, key := range keys {
					keys[i] = how + ":" + key
				}
				return keys
			}
			acquire := func(key, body string) { served.acquire(ctx, how+":"+key, body) }
			acquire("kept", ofMinutes)
			acquire("broken", ofMinutes)
			acquire("expiring", `{"ttl_seconds":1}`)
			p := openPage(map[string]string{"namespace": locks + "?watch=true&prefix=" + how})
			Eventually(p.held).WithTimeout(patience).Should(ConsistOf(named("kept", "broken")))
			acquire("last", ofMinutes)
			Eventually(p.held).WithTimeout(patience).Should(ConsistOf(named("kept", "broken", "last")))
			events := p.events("namespace")
			lastID := events[len(events)-1].ID
			Expect(p.lastEventIDs()).To(BeEmpty())

			end()
			// No admission runs, so another client can write while the façade is away.
			Expect(admin.Create(ctx, rules.Grant("default", rules.Acquisition{
				Key: how + ":created", Owner: "o", Holder: "admin", TTL: 10 * time.Minute,
			}, rules.DefaultLimits(), time.Now()))).To(Succeed())
			broken := metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.FullKeyOf(how + ":broken").ObjectName()}
			Expect(admin.Delete(ctx, &v1alpha1.Lock{ObjectMeta: broken})).To(Succeed())
			served.start(ctx)

			Eventually(p.held).WithTimeout(patience).Should(ConsistOf(named("kept", "last", "created")))
			Eventually(p.lastEventIDs).WithTimeout(patience).Should(ContainElement(lastID))
			acquire("after", ofMinutes)
			Eventually(p.held).WithTimeout(patience).Should(ConsistOf(named("kept", "last", "created", "after")))
		})
	}
})
