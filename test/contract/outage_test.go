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
		Eventually(ended).WithTimeout(answer).Should(Receive(Succeed()))
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

// limit is the deadline of each call, which has begun long before that also on a slow machine.
const limit = 2 * time.Second

// callAfterOutage makes a call that ends at its limit of a service that has gone away, and returns how long it took.
func callAfterOutage(ctx context.Context, name, call string, limit time.Duration) (took time.Duration, err error) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	backend, takeAway := workingBackends[name](ctx, namespace)
	locks := lock.NewClient(backend, namespace, lock.WithReleaseTimeout(limit), lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
	held, err := locks.Acquire(ctx, "billing:report")
	Expect(err).NotTo(HaveOccurred())
	takeAway()

	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err = outageCalls[call](limited, locks, held)
	took = time.Since(began)
	GinkgoWriter.Printf("%v after %v\n", err, took)
	return took, err
}

// waitIntoOutage waits until its limit for a lock of a service that goes away meanwhile.
func waitIntoOutage(ctx context.Context, name string, limit time.Duration) (took time.Duration, err error) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	backend, takeAway := workingBackends[name](ctx, namespace)
	locks := lock.NewClient(backend, namespace, lock.WithReleaseTimeout(limit), lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
	_, err = locks.Acquire(ctx, "billing:report")
	Expect(err).NotTo(HaveOccurred())

	returned := make(chan ended, 1)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	go func() {
		_, err := locks.Acquire(limited, "billing:report")
		returned <- ended{err, time.Since(began)}
	}()
	Consistently(returned).WithTimeout(limit / 2).ShouldNot(Receive())
	takeAway()
	var wait ended
	Eventually(returned).WithTimeout(answer).Should(Receive(&wait))
	GinkgoWriter.Printf("%v after %v\n", wait.err, wait.took)
	return wait.took, wait.err
}

// ended is how a call has ended.
type ended struct {
	err  error
	took time.Duration
}

var _ = Describe("A service that goes away under a holder", func() {
	for name := range workingBackends {
		for call := range outageCalls {
			It("is told of as unavailable by "+name+": "+call, func(ctx context.Context) {
				_, err := callAfterOutage(ctx, name, call, limit)
				Expect(err).To(MatchError(lock.ErrUnavailable))
				Expect(err).NotTo(MatchError(lock.ErrHeld))
				Expect(err).NotTo(MatchError(lock.ErrNotHeld))
			}, SpecTimeout(2*answer))
		}

		It("ends a wait on "+name+" that is under way", func(ctx context.Context) {
			_, err := waitIntoOutage(ctx, name, 2*limit)
			Expect(err).To(And(MatchError(context.DeadlineExceeded), MatchError(lock.ErrUnavailable)))
			Expect(err).NotTo(MatchError(lock.ErrHeld))
			interrupted, ok := errors.AsType[*lock.InterruptedError](err)
			Expect(ok).To(BeTrue(), "%T", err)
			Expect(interrupted.Key).To(BeEquivalentTo("lock:billing:report"))
		})
	}
})
