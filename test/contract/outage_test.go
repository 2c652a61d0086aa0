package contract_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// workingBackends return a backend that works, and what takes its service away.
var workingBackends = map[string]func(ctx context.Context, namespace string) (backend lock.Backend, takeAway func()){
	"a direct engine": func(ctx context.Context, namespace string) (lock.Backend, func()) {
		config := environment.Identity(directUser, testenv.TestersGroup).Config
		between := relayTo(ctx, config.Host)
		config.Host = between.url()
		direct, err := engine.NewDirect(config, namespace, logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		start(ctx, direct)
		return direct, between.close
	},
	"a client of a façade": func(ctx context.Context, namespace string) (lock.Backend, func()) {
		handler, err := testfacade.New(testfacade.Settings{Locks: served, Access: fixture.SingleUser(facadeCaller), MaxBlock: maxBlock})
		Expect(err).NotTo(HaveOccurred())
		server := httptest.NewServer(handler)
		DeferCleanup(server.Close)
		between := relayTo(ctx, server.URL)
		asking, err := client.New(between.url(), client.WithMaxBlock(maxBlock), client.WithNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(asking.Close)
		return asking, between.close
	},
	"a backend in memory": func(context.Context, string) (lock.Backend, func()) {
		backend := locktest.New()
		return backend, func() { backend.SetUnavailable(true) }
	},
}

// start runs the engine until the spec ends.
func start(ctx context.Context, direct *engine.Engine) {
	GinkgoHelper()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- direct.Start(working) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(20 * time.Second).Should(Receive(Succeed()))
	})
}

// outageCalls are made of a service that is gone. The caller holds the lock.
var outageCalls = map[string]func(ctx context.Context, locks *lock.Client, held *lock.Held) error{
	"Acquire": func(ctx context.Context, locks *lock.Client, _ *lock.Held) error {
		_, err := locks.Acquire(ctx, "free")
		return err
	},
	"TryAcquire": func(ctx context.Context, locks *lock.Client, _ *lock.Held) error {
		_, err := locks.TryAcquire(ctx, "free")
		return err
	},
	"Do": func(ctx context.Context, locks *lock.Client, _ *lock.Held) error {
		return locks.Do(ctx, "free", func(context.Context, *lock.Held) error { return errors.New("the function ran") })
	},
	"Renew": func(ctx context.Context, _ *lock.Client, held *lock.Held) error { return held.Renew(ctx, time.Minute) },
	// Its deadline is that of WithReleaseTimeout.
	"Held.Release": func(ctx context.Context, _ *lock.Client, held *lock.Held) error { return held.Release(ctx) },
}

var _ = Describe("A service that goes away under a holder", func() {
	for name, newBackend := range workingBackends {
		for call, ask := range outageCalls {
			It("is told of as unavailable by "+name+" within the caller's deadline: "+call, func(ctx context.Context) {
				namespace := newNamespace(ctx)
				backend, takeAway := newBackend(ctx, namespace)
				locks := lock.NewClient(backend, namespace, lock.WithReleaseTimeout(limit), lock.WithTTL(time.Minute), lock.WithoutRenewal())
				held, err := locks.Acquire(ctx, "billing:report")
				Expect(err).NotTo(HaveOccurred())
				takeAway()

				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				began := time.Now()
				err = ask(limited, locks, held)
				took := time.Since(began)
				GinkgoWriter.Printf("%v after %v\n", err, took)
				Expect(err).To(MatchError(lock.ErrUnavailable))
				Expect(err).NotTo(MatchError(lock.ErrHeld))
				Expect(err).NotTo(MatchError(lock.ErrNotHeld))
				Expect(took).To(BeNumerically("<", limit+late))
			})
		}

		It("ends a wait on "+name+" that is under way at the caller's deadline", func(ctx context.Context) {
			namespace := newNamespace(ctx)
			backend, takeAway := newBackend(ctx, namespace)
			locks := lock.NewClient(backend, namespace, lock.WithReleaseTimeout(limit), lock.WithTTL(time.Minute), lock.WithoutRenewal())
			_, err := locks.Acquire(ctx, "billing:report")
			Expect(err).NotTo(HaveOccurred())

			type ended struct {
				err  error
				took time.Duration
			}
			returned := make(chan ended, 1)
			limited, cancel := context.WithTimeout(ctx, 2*limit)
			defer cancel()
			began := time.Now()
			go func() {
				_, err := locks.Acquire(limited, "billing:report")
				returned <- ended{err, time.Since(began)}
			}()
			Consistently(returned).WithTimeout(limit / 2).ShouldNot(Receive())
			takeAway()
			var wait ended
			Eventually(returned).WithTimeout(20 * time.Second).Should(Receive(&wait))
			GinkgoWriter.Printf("%v after %v\n", wait.err, wait.took)
			Expect(wait.err).To(And(MatchError(context.DeadlineExceeded), MatchError(lock.ErrUnavailable)))
			Expect(wait.err).NotTo(MatchError(lock.ErrHeld))
			interrupted, ok := errors.AsType[*lock.InterruptedError](wait.err)
			Expect(ok).To(BeTrue(), "%T", wait.err)
			Expect(interrupted.Key).To(BeEquivalentTo("lock:billing:report"))
			Expect(wait.took).To(BeNumerically("<", 2*limit+late))
		})
	}
})
