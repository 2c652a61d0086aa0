package contract_test

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// replica is an engine that runs until the suite ends.
type replica struct {
	*engine.Engine
	waits *waitCounter
}

// startReplica starts an engine with an identity, on an informer of its own.
func startReplica(ctx context.Context, config *rest.Config, isAdmitted bool) replica {
	GinkgoHelper()
	httpClient, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	started := replica{waits: &waitCounter{}}
	stream := engine.NewWatchStream(started.waits, logr.Discard())
	options := engine.Options{
		Objects: objects.Locks, Stream: stream, Limits: rules.DefaultLimits(), IsAdmitted: isAdmitted, Clock: started.waits,
	}
	run, hasSynced := informerFor(&options, objects)
	started.Engine, err = engine.New(options)
	Expect(err).NotTo(HaveOccurred())

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { run(running) })
	parts.Go(func() {
		defer GinkgoRecover()
		Expect(started.Start(running)).To(Succeed())
	})
	DeferCleanup(func() {
		stop()
		parts.Wait()
	})
	Eventually(hasSynced).WithTimeout(30 * time.Second).Should(BeTrue())
	return started
}

// informerFor sets the informer that such an engine has in production.
func informerFor(options *engine.Options, objects *engine.ObjectClient) (run func(context.Context), hasSynced func() bool) {
	if options.IsAdmitted {
		informer := objects.KeyInformer("", options.Stream)
		options.Informer = informer
		return informer.Run, func() bool { return true }
	}
	informer := objects.Informer("", options.Stream)
	options.Informer = informer
	return informer.RunWithContext, informer.HasSynced
}

// waitCounter is a clock that counts the timers of callers that begin to wait for an
// hour or so, which nothing else does.
type waitCounter struct {
	clock.RealClock
	mu    sync.Mutex
	waits int
}

// NewTimer implements [clock.Clock].
func (c *waitCounter) NewTimer(length time.Duration) clock.Timer {
	if length > 30*time.Minute {
		c.mu.Lock()
		c.waits++
		c.mu.Unlock()
	}
	return c.RealClock.NewTimer(length)
}

func (c *waitCounter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits
}
