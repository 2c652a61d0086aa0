// Package jobs_test proves that pods of Jobs run only while the Job holds its lock, on a real API server with Job controller,
// CronJob controller, garbage collector and a simulated kubelet: also while processes die, connections are cut, the webhook is
// away, and Jobs are stopped.
package jobs_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// patience bounds what must happen, on a busy machine. The Job controller takes a second for most of its
// work.
const patience = time.Minute

var (
	environment *fixture.Cluster
	manager     *testenv.ControllerManager
	node        *kubelet.Kubelet
	admin       client.Client
	kubectl     *testenv.Kubectl
	// admission is apart from the operator, which the specs start, stop and kill.
	admission *fixture.Admission
)

func TestJobs(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Locked Jobs")
}

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	kubectl, admin = environment.Admin.Kubectl, environment.Admin.Client
	admission = environment.StartAdmission(ctx, register)
	var err error
	manager, err = environment.StartControllerManager("job-controller", "cronjob-controller", "garbage-collector-controller",
		"ttl-after-finished-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	clientset, err := kubernetes.NewForConfig(environment.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(node.Stop)
})

// register adds the webhooks of Locks and of Jobs.
func register(manager ctrl.Manager) {
	locks := fixture.LockAdmission(manager)
	locks.SetupWithManager(manager)
	(&webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clock.RealClock{}, Authorizer: locks.Authorizer}).SetupWithManager(manager)
}
