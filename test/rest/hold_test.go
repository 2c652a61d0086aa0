package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/rest/wire"
)

// connection is one that holds a lock.
type connection struct {
	events *bufio.Scanner
	close  func()
}

// hold holds a lock by a connection until the caller closes it.
func (c caller) hold(ctx context.Context, key, body string) *connection {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	response, err := http.DefaultClient.Do(c.request(ctx, http.MethodPost, "/locks/"+key+"?hold=true", body)) //nolint:bodyclose // The function close does.
	Expect(err).NotTo(HaveOccurred())
	Expect(response.StatusCode).To(Equal(http.StatusCreated))
	held := &connection{events: bufio.NewScanner(response.Body), close: func() {
		cancel()
		_ = response.Body.Close()
	}}
	DeferCleanup(held.close)
	return held
}

// next returns the next event.
func (c *connection) next() (name string, about wire.Lock) {
	GinkgoHelper()
	for c.events.Scan() {
		field, value, _ := strings.Cut(c.events.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			Expect(json.Unmarshal([]byte(value), &about)).To(Succeed(), value)
			return name, about
		}
	}
	Fail("the stream has ended")
	return "", about
}

var _ = Describe("A connection that holds a lock", func() {
	It("costs a write for the grant, for each renewal and for the release, and no read", func(ctx context.Context) {
		holder := worker(ctx, "alice", everything...)
		requests.taken()
		held := holder.hold(ctx, "report", `{"ttl_seconds":5}`)
		name, acquired := held.next()
		Expect(name).To(Equal("acquired"))
		Expect(acquired.HeldBy).To(Equal("connection"))
		for range 2 {
			name, renewed := held.next()
			Expect(name).To(Equal("renewed"))
			Expect(renewed.ExpiresAt > acquired.ExpiresAt).To(BeTrue(), "%+v", renewed)
		}
		Expect(requests.taken()).To(Equal(map[string]int{http.MethodPost: 1, http.MethodPut: 2}))
		held.close()
		Eventually(func(ctx context.Context) int { return holder.do(ctx, http.MethodGet, "/report", "").status }).
			WithContext(ctx).Should(Equal(http.StatusNotFound))
		made := requests.taken()
		Expect(made[http.MethodDelete]).To(Equal(1), "%v", made)
		Expect(made[http.MethodPut]).To(BeZero(), "%v", made)
	})

	It("is told at once when the lock is broken", func(ctx context.Context) {
		holder := worker(ctx, "alice", everything...)
		held := holder.hold(ctx, "report", `{"ttl_seconds":3600}`)
		_, acquired := held.next()
		Expect(holder.do(ctx, http.MethodDelete, "/report", "", "X-Lock-Token", acquired.LockToken).status).To(Equal(http.StatusNoContent))
		name, _ := held.next()
		Expect(name).To(Equal("lost"))
	})
})
