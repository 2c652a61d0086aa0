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

// useRecordedFacade has the callers of the spec ask a façade whose records are kept. Others may end an expired lock so late that a
// watch on a busy machine shows a change within half of that.
func useRecordedFacade(ctx context.Context) *audittest.Recorder {
	GinkgoHelper()
	records, shared := &audittest.Recorder{}, url
	url = startFacade(ctx, &counter{}, 10*time.Second, records)
	DeferCleanup(func() { url = shared })
	return records
}

// brieflyHeld is a lock of alice that ends soon, and what bob is streamed of it. Bob has been told that it was acquired: a lock that
// is first shown after its end is no news.
type brieflyHeld struct {
	key, token string
	expires    time.Time
	stream     <-chan string
}

func holdBriefly(ctx context.Context, alice, bob caller, key string) brieflyHeld {
	GinkgoHelper()
	stream := events(ctx, bob, "/"+key+"?watch=true")
	Eventually(stream).WithTimeout(patience).Should(Receive(Equal("sync")))
	held := alice.do(ctx, http.MethodPost, "/"+key, `{"ttl_seconds":5}`)
	Expect(held.status).To(Equal(http.StatusCreated), "%s", held.body)
	Eventually(stream).WithTimeout(patience).Should(Receive(Equal("acquired")))
	expires, err := time.Parse(time.RFC3339, held.lock().ExpiresAt)
	Expect(err).NotTo(HaveOccurred())
	return brieflyHeld{key, held.lock().LockToken, expires, stream}
}

// next returns what is streamed next.
func (h brieflyHeld) next() (told string) {
	GinkgoHelper()
	Eventually(h.stream).WithTimeout(patience).Should(Receive(&told))
	return told
}

// expectRecords checks what is on record of a lock besides grants. An expiry is on record when another caller has got the lock.
func expectRecords(ctx context.Context, records *audittest.Recorder, next caller, key string, want []audit.Event, told ...any) {
	GinkgoHelper()
	Expect(next.do(ctx, http.MethodPost, "/"+key, `{"ttl_seconds":60,"wait_seconds":30}`).status).To(Equal(http.StatusCreated))
	Eventually(func() (found []audit.Event) {
		for _, record := range records.Of(key) {
			if record.Event == audit.Renewed || record.HeldSeconds != nil {
				found = append(found, record.Event)
			}
		}
		return found
	}).WithTimeout(patience).Should(Equal(want), told...)
}

// What comes shortly before the expiry may be in time or not. Either way, all that is told of it is the same.
var _ = Describe("A release around the expiry", func() {
	It("is told by answer, stream and audit alike", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		records := useRecordedFacade(ctx)
		alice, bob := worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		var releases sync.WaitGroup
		for round := range 20 {
			releases.Go(func() {
				defer GinkgoRecover()
				held := holdBriefly(ctx, alice, bob, fmt.Sprint("k", round))
				<-time.After(time.Until(held.expires) - time.Duration(4*round)*time.Millisecond)
				released := alice.do(ctx, http.MethodDelete, "/"+held.key, "", "X-Lock-Token", held.token)
				event, end := "released", audit.Released
				if released.status != http.StatusNoContent {
					Expect(released.status).To(Equal(http.StatusGone), "%s", released.body)
					event, end = "expired", audit.Expired
				}
				Expect(held.next()).To(Equal(event), "the release was answered with %d", released.status)
				expectRecords(ctx, records, bob, held.key, []audit.Event{end}, "the release was answered with %d", released.status)
				AddReportEntry(fmt.Sprintf("%s: %d, %s", held.key, released.status, event))
			})
		}
		releases.Wait()
	})
})

var _ = Describe("A renewal around the expiry", func() {
	It("is told by answer, stream and audit alike", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		records := useRecordedFacade(ctx)
		alice, bob := worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		var renewals sync.WaitGroup
		for round := range 20 {
			renewals.Go(func() {
				defer GinkgoRecover()
				held := holdBriefly(ctx, alice, bob, fmt.Sprint("k", round))
				<-time.After(time.Until(held.expires) - time.Duration(4*round)*time.Millisecond)
				renewed := alice.do(ctx, http.MethodPut, "/"+held.key, `{"ttl_seconds":60}`, "X-Lock-Token", held.token)
				told := []string{held.next()}
				recorded := []audit.Event{audit.Renewed, audit.Released}
				if renewed.status == http.StatusOK {
					Expect(told).To(HaveExactElements("renewed"), "the renewal was answered with %d", renewed.status)
					Expect(alice.do(ctx, http.MethodDelete, "/"+held.key, "", "X-Lock-Token", held.token).status).To(Equal(http.StatusNoContent))
					Expect(held.next()).To(Equal("released"))
				} else {
					Expect(renewed.status).To(Equal(http.StatusGone), "%s", renewed.body)
					recorded = []audit.Event{audit.Expired}
					if told[0] != "expired" { // It was stored too late, and the service has ended what it made.
						told = append(told, held.next())
						Expect(told).To(HaveExactElements("renewed", "released"), "the renewal was answered with %d", renewed.status)
					}
				}
				expectRecords(ctx, records, bob, held.key, recorded, "the renewal was answered with %d, and streamed as %q", renewed.status, told)
				AddReportEntry(fmt.Sprintf("%s: %d, %q", held.key, renewed.status, told))
			})
		}
		renewals.Wait()
	})
})

var _ = Describe("A lock that ends before any answer", func() {
	var alice, bob caller
	BeforeEach(func(ctx context.Context) {
		alice, bob = worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
	})
	const brief = `{"ttl_seconds":0.001}`
	// isServed checks the answer to a request for a millisecond, which may be quicker than that.
	isServed := func(got answer) {
		GinkgoHelper()
		if got.status == http.StatusCreated {
			return
		}
		Expect(got.status).To(Equal(http.StatusBadRequest), "%s", got.body)
		problem := got.problem()
		Expect(problem.Type).To(Equal("urn:lock-operator:problem:invalid-request"))
		Expect(problem.Retryable).To(BeFalse())
		Expect(problem.Errors).To(HaveExactElements(And(
			HaveField("In", "body"), HaveField("Field", "ttl_seconds"), HaveField("Detail", HavePrefix("is too short: ")),
		)))
	}
	// isFree has the other caller get the lock.
	isFree := func(ctx context.Context) {
		GinkgoHelper()
		Expect(bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60,"wait_seconds":30}`).status).To(Equal(http.StatusCreated))
	}

	It("is refused as too short, and not as unavailable for ever", func(ctx context.Context) {
		for range 5 { // The lock of the first request is in the way of the next.
			isServed(alice.do(ctx, http.MethodPost, "/k", brief))
		}
		_, code := alice.callForrst(ctx, "acquire", `{"key":"k","owner":"o","ttl":{"value":1,"unit":"millisecond"}}`)
		Expect(code).To(Or(BeEmpty(), Equal("INVALID_ARGUMENTS")))
		isFree(ctx)
	})

	It("is refused to a caller that has waited, and passes on", func(ctx context.Context) {
		held := bob.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		waited := make(chan answer, 1)
		go func() {
			defer close(waited)
			defer GinkgoRecover()
			waited <- alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":0.001,"wait_seconds":45}`)
		}()
		Eventually(func() string { return string(bob.do(ctx, http.MethodGet, "/k/waiters", "").body) }).WithTimeout(patience).
			Should(ContainSubstring(namespace + ":alice"))
		Expect(bob.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
		isServed(<-waited)
		isFree(ctx)
	})

	It("is gone for a holder that renews it for as long", func(ctx context.Context) {
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		renewed := alice.do(ctx, http.MethodPut, "/k", brief, "X-Lock-Token", held.LockToken)
		Expect(renewed.status).To(Or(Equal(http.StatusGone), Equal(http.StatusOK)), "%s", renewed.body)
		Eventually(func() int { return alice.do(ctx, http.MethodPut, "/k", brief, "X-Lock-Token", held.LockToken).status }).
			WithTimeout(patience).Should(Equal(http.StatusGone))
		isFree(ctx)
	})
})
