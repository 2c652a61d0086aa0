// Package lockedjobs is what the suites about locked Jobs share: a real API server with Job controller, CronJob controller,
// garbage collector and a simulated kubelet, replicas of the operator, and the words of the specs.
package lockedjobs

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

// Patience bounds what must happen, on a busy machine. The Job controller takes a second for most of its
// work.
const Patience = time.Minute

// What [Start] has started.
var (
	Environment *fixture.Cluster
	Manager     *testenv.ControllerManager
	Node        *kubelet.Kubelet
	Admin       client.Client
	Kubectl     *testenv.Kubectl
	// Admission is apart from the operator, which the specs start, stop and kill.
	Admission *fixture.Admission
)

// Run runs the specs of a suite.
func Run(t *testing.T, suite string) {
	t.Helper()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	RunSpecs(t, suite)
}

// Start starts everything but an operator until the suite ends.
func Start(ctx context.Context) {
	GinkgoHelper()
	Environment = fixture.Start(ctx)
	Kubectl, Admin = Environment.Admin.Kubectl, Environment.Admin.Client
	Admission = Environment.StartAdmission(ctx, register)
	var err error
	Manager, err = Environment.StartControllerManager("job-controller", "cronjob-controller", "garbage-collector-controller",
		"ttl-after-finished-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return Manager.Stop() })
	clientset, err := kubernetes.NewForConfig(Environment.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	Node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Node.Stop() })
}

// register adds the webhooks of Locks and of Jobs.
func register(manager ctrl.Manager) {
	locks := fixture.LockAdmission(manager)
	locks.SetupWithManager(manager)
	(&webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clock.RealClock{}, Authorizer: locks.Authorizer}).SetupWithManager(manager)
}
