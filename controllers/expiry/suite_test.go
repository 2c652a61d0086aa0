package expiry_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// patience bounds what must happen, on a busy machine.
const patience = 30 * time.Second

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Controllers")
}

var (
	environment *fixture.Cluster
	admin       client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
})

// startReaper runs an expiry controller until the returned function is called. Nil
// election means that it needs no election.
func startReaper(ctx context.Context, allowance time.Duration, election *leadership.Election) (stop func()) {
	GinkgoHelper()
	manager, err := environment.NewManager()
	Expect(err).NotTo(HaveOccurred())
	if election == nil {
		election = leadership.Always()
	}
	Expect(manager.Add(election)).To(Succeed())
	Expect((&expiry.Reconciler{
		Client:             manager.GetClient(),
		ClockSkewAllowance: allowance,
		Clock:              clock.RealClock{},
		Leadership:         election,
		Events:             &lockevents.Reporter{Recorder: lockevents.Bounded(manager.GetEventRecorder("lock-operator"), clock.RealClock{})},
	}).SetupWithManager(manager)).To(Succeed())
	end := testenv.StartManager(ctx, manager)
	Expect(manager.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			Expect(end()).To(Succeed())
		}
	}
	DeferCleanup(stop)
	return stop
}

// candidate takes part in the election of the operator.
func candidate() *leadership.Election {
	GinkgoHelper()
	return environment.Candidate("lock-operator.forrst.dev")
}

// held stores a lock with the given ttl, as the façade does.
func held(ctx context.Context, key string, ttl time.Duration) *v1alpha1.Lock {
	GinkgoHelper()
	lock := rules.Grant("default", rules.Acquisition{Key: key, Owner: "token-a", Holder: "alice", TTL: ttl}, rules.DefaultLimits(), time.Now())
	Expect(admin.Create(ctx, lock)).To(Succeed())
	DeferCleanup(func(ctx context.Context) error { return client.IgnoreNotFound(admin.Delete(ctx, lock)) })
	return lock
}
