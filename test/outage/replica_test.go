package outage_test

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// replica is an engine with its informer, as in the operator.
type replica struct {
	*engine.Engine
	// proxy is what its requests pass through.
	proxy *proxy
}

// startReplica runs a replica until the suite or spec ends.
func startReplica(ctx context.Context, operator *rest.Config) replica {
	GinkgoHelper()
	through := startProxy(ctx, operator)
	now := servertime.New(clock.RealClock{})
	config := through.config()
	config.Wrap(now.RoundTripper)
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	stream := engine.NewWatchStream(now, logr.Discard())
	informer := objects.Informer("", stream)
	locks, err := engine.New(engine.Options{
		Objects: objects.Locks, Limits: rules.DefaultLimits(), Clock: now,
		Informer: informer, Stream: stream,
	})
	Expect(err).NotTo(HaveOccurred())

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { informer.RunWithContext(running) })
	parts.Go(func() {
		defer GinkgoRecover()
		Expect(locks.Start(running)).To(Succeed())
	})
	DeferCleanup(func() {
		stop()
		parts.Wait()
	})
	Eventually(informer.HasSynced).WithTimeout(patience).Should(BeTrue())
	return replica{Engine: locks, proxy: through}
}
