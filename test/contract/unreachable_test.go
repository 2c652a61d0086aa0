package contract_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/locktest"
)

// unreachableBackends are told to use a service at the url.
var unreachableBackends = map[string]func(ctx context.Context, url string) lock.Backend{
	"a direct engine": func(ctx context.Context, url string) lock.Backend {
		direct, err := engine.NewDirect(&rest.Config{Host: url}, "default", logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		start(ctx, direct)
		return direct
	},
	"a client of a façade": func(_ context.Context, url string) lock.Backend {
		asking, err := client.New(url)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(asking.Close)
		return asking
	},
	"a backend in memory": func(context.Context, string) lock.Backend {
		backend := locktest.New()
		backend.SetUnavailable(true)
		return backend
	},
}

// unreachable returns urls where no service can be reached.
var unreachable = map[string]func() string{
	"nothing listens": func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		Expect(listener.Close()).To(Succeed())
		return "http://" + listener.Addr().String()
	},
	"the certificate authority is wrong": func() string {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		DeferCleanup(server.Close)
		return server.URL
	},
}

// unreachableCalls are the calls that have to be told.
var unreachableCalls = map[string]func(ctx context.Context, locks *lock.Client, backend lock.Backend) error{
	"Acquire": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.Acquire(ctx, "billing:report")
		return err
	},
	"Acquire with a wait": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.Acquire(ctx, "billing:report", lock.WithWait(time.Second))
		return err
	},
	"TryAcquire": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.TryAcquire(ctx, "billing:report")
		return err
	},
	"Do": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		return locks.Do(ctx, "billing:report", func(context.Context, *lock.Held) error { return errors.New("the function ran") })
	},
	"Resume": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.Resume(ctx, "billing:report", lock.Proof{Owner: "job-17"})
		return err
	},
	"Release": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		return locks.Release(ctx, "billing:report", lock.Proof{Owner: "job-17"})
	},
	"ForceRelease": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		return locks.ForceRelease(ctx, "billing:report", "maintenance")
	},
	"Get": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.Get(ctx, "billing:report")
		return err
	},
	"List": func(ctx context.Context, locks *lock.Client, _ lock.Backend) error {
		_, err := locks.List(ctx)
		return err
	},
	"Renew": func(ctx context.Context, _ *lock.Client, backend lock.Backend) error {
		_, err := backend.Renew(ctx, "default", v1alpha1.FullKey("lock:billing:report"), lock.Proof{Owner: "job-17"}, 0)
		return err
	},
}

// callUnreachable makes all calls but one of a service at the url, each with the limit. They are made at once, each by a backend
// of its own, in which no other caller waits.
func callUnreachable(ctx context.Context, name, url string, limit time.Duration, without string) map[string]ended {
	GinkgoHelper()
	var mu sync.Mutex
	var all sync.WaitGroup
	made := map[string]ended{}
	for call, ask := range unreachableCalls {
		if call == without {
			continue
		}
		backend := unreachableBackends[name](ctx, url)
		locks := lock.NewClient(backend, "default", lock.WithReleaseTimeout(limit))
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			began := time.Now()
			err := ask(limited, locks, backend)
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			made[call] = ended{err, took}
			GinkgoWriter.Printf("%s: %v after %v\n", call, err, took)
		})
	}
	all.Wait()
	return made
}

// freeze returns the url of a service that answers nothing.
func freeze() string {
	frozen := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-frozen:
		case <-request.Context().Done():
		}
	}))
	DeferCleanup(server.Close)
	DeferCleanup(func() { close(frozen) })
	return server.URL
}

var _ = Describe("A service that cannot be reached", func() {
	for _, name := range []string{"a direct engine", "a client of a façade"} {
		It("keeps no caller of "+name+" for ever while it answers nothing", func(ctx context.Context) {
			// A forced release completes the write that it has begun.
			for call, made := range callUnreachable(ctx, name, freeze(), limit, "ForceRelease") {
				want := context.DeadlineExceeded
				if call == "Release" {
					want = lock.ErrUnavailable // It goes on after ctx has ended, until its own timeout.
				}
				Expect(made.err).To(MatchError(want), call)
				Expect(made.err).NotTo(MatchError(lock.ErrHeld), call)
			}
		}, SpecTimeout(2*answer))
	}

	for reason, urlOf := range unreachable {
		for name, newBackend := range unreachableBackends {
			It("is told of as unavailable by "+name+" to a caller with a deadline: "+reason, func(ctx context.Context) {
				// Ten handshakes at once take seconds on a busy machine, with the race detector.
				for call, made := range callUnreachable(ctx, name, urlOf(), 5*limit, "") {
					Expect(made.err).To(MatchError(lock.ErrUnavailable), call)
					Expect(made.err).NotTo(MatchError(lock.ErrHeld), call)
				}
			}, SpecTimeout(2*answer))

			It("is told of by "+name+" to a caller without a deadline: "+reason, func(ctx context.Context) {
				_, err := lock.NewClient(newBackend(ctx, urlOf()), "default").Acquire(ctx, "billing:report")
				Expect(err).To(MatchError(lock.ErrUnavailable))
				Expect(err).NotTo(MatchError(context.DeadlineExceeded))
			}, SpecTimeout(2*answer))
		}
	}
})
