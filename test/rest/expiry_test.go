package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
)

// Releases that come shortly before the expiry may be in time or not. Either way, all that is told of one is the same.
var _ = Describe("A release around the expiry", func() {
	var records *audittest.Recorder
	BeforeEach(func(ctx context.Context) {
		records = &audittest.Recorder{}
		shared := url
		// A watch on a busy machine shows a change within half of that.
		url = startFacade(ctx, &counter{}, 10*time.Second, records)
		DeferCleanup(func() { url = shared })
	})
	It("is told by answer, stream and audit alike", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		alice, bob := worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		var releases sync.WaitGroup
		for round := range 20 {
			releases.Go(func() {
				defer GinkgoRecover()
				key := fmt.Sprint("k", round)
				stream := events(ctx, bob, "/"+key+"?watch=true")
				Eventually(stream).WithTimeout(patience).Should(Receive(Equal("sync")))
				held := alice.do(ctx, http.MethodPost, "/"+key, `{"ttl_seconds":5}`)
				Expect(held.status).To(Equal(http.StatusCreated), "%s", held.body)
				// A lock that is first shown after its end is no news.
				Eventually(stream).WithTimeout(patience).Should(Receive(Equal("acquired")))
				expires, err := time.Parse(time.RFC3339, held.lock().ExpiresAt)
				Expect(err).NotTo(HaveOccurred())
				<-time.After(time.Until(expires) - time.Duration(4*round)*time.Millisecond)
				released := alice.do(ctx, http.MethodDelete, "/"+key, "", "X-Lock-Token", held.lock().LockToken)
				event, end := "released", audit.Released
				if released.status != http.StatusNoContent {
					Expect(released.status).To(Equal(http.StatusGone), "%s", released.body)
					event, end = "expired", audit.Expired
				}
				told := ""
				Eventually(stream).WithTimeout(patience).Should(Receive(&told, Or(Equal("released"), Equal("expired"))))
				Expect(told).To(Equal(event), "the release was answered with %d", released.status)
				// An expiry is on record when another caller gets the lock.
				Expect(bob.do(ctx, http.MethodPost, "/"+key, `{"ttl_seconds":60,"wait_seconds":30}`).status).To(Equal(http.StatusCreated))
				ends := []audit.Event{}
				for _, record := range records.Of(key) {
					if record.HeldSeconds != nil {
						ends = append(ends, record.Event)
					}
				}
				Expect(ends).To(Equal([]audit.Event{end}), "the release was answered with %d", released.status)
				AddReportEntry(fmt.Sprintf("%s: %d, %s", key, released.status, told))
			})
		}
		releases.Wait()
	})
})
