package jobs_test

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/jobgate"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
)

// operator is one replica, as far as it is about Jobs.
type operator struct {
	Gate       *jobgate.Reconciler
	Leadership *leadership.Election
	// Stop stops it, once.
	Stop func()
}

// startOperator starts a replica that leads, and stops it after the spec unless that has happened.
func startOperator(ctx context.Context, changes ...func(*rest.Config)) *operator {
	GinkgoHelper()
	return startReplica(ctx, leadership.Always(), changes...)
}

// startReplica is [startOperator] for one that takes part in an election.
func startReplica(ctx context.Context, leadership *leadership.Election, changes ...func(*rest.Config)) *operator {
	GinkgoHelper()
	return startReplicaWith(ctx, leadership, clock.RealClock{}, changes...)
}

// startReplicaWith is [startReplica] for one whose gate goes by the clock.
func startReplicaWith(ctx context.Context, leadership *leadership.Election, now clock.WithTicker, changes ...func(*rest.Config)) *operator {
	GinkgoHelper()
	mgr, err := environment.NewManagerFor(func(config *rest.Config) {
		for _, change := range changes {
			change(config)
		}
	}, func(options *ctrl.Options) { options.Logger = GinkgoLogr })
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(mgr.GetConfig(), mgr.GetHTTPClient())
	Expect(err).NotTo(HaveOccurred())
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.Lock{})
	if err != nil {
		Expect(err).To(MatchError(ContainSubstring("cache is not started"))) // It starts with the manager.
	}
	engine, err := engine.New(engine.Options{
		Objects: objects.Locks, Informer: informer, Limits: rules.DefaultLimits(), Logger: logr.Discard(),
	})
	Expect(err).NotTo(HaveOccurred())
	gate := &jobgate.Reconciler{
		Client: mgr.GetClient(), LiveReader: mgr.GetAPIReader(), Engine: engine, Holder: testenv.OperatorUser,
		Limits: rules.DefaultLimits(), Clock: now, Leadership: leadership,
		Recorder: mgr.GetEventRecorder("lock-operator"), AnnotateAfter: time.Second,
	}
	Expect(mgr.Add(engine)).To(Succeed())
	Expect(mgr.Add(leadership)).To(Succeed())
	Expect(gate.SetupWithManager(mgr)).To(Succeed())
	stopManager := testenv.StartManager(ctx, mgr)
	started := &operator{Gate: gate, Leadership: leadership}
	isStopped := false
	started.Stop = func() {
		GinkgoHelper()
		if !isStopped {
			isStopped = true
			Expect(stopManager()).To(Succeed())
		}
	}
	DeferCleanup(func() { started.Stop() })
	return started
}
