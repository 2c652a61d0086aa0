// Package jobs_test runs Jobs under locks: with a real API server, Job controller,
// CronJob controller and garbage collector, and with a simulated kubelet.
package jobs_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/webhook"
)

// patience bounds what has to happen. The Job controller alone takes a second for most
// of what it does.
const patience = 30 * time.Second

func TestJobs(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Locked Jobs")
}

var (
	environment *testenv.Environment
	manager     *testenv.ControllerManager
	node        *kubelet.Kubelet
	admin       client.Client
	adminConfig *rest.Config
	kubectl     *testenv.Kubectl
)

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	environment, err = testenv.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return environment.Stop() })
	adminConfig, kubectl, err = environment.User("admin", "system:masters")
	Expect(err).NotTo(HaveOccurred())
	adminConfig.QPS = -1
	admin, err = client.New(adminConfig, client.Options{Scheme: environment.Scheme})
	Expect(err).NotTo(HaveOccurred())

	startWebhook(ctx)
	manager, err = environment.StartControllerManager("job-controller", "cronjob-controller", "garbage-collector-controller",
		"ttl-after-finished-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })
	clientset, err := kubernetes.NewForConfig(adminConfig)
	Expect(err).NotTo(HaveOccurred())
	node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { node.Stop() })
})

var (
	// stopWebhook takes the admission away until serveWebhook brings it back.
	stopWebhook  func() error
	serveWebhook func(context.Context)
)

// startWebhook starts the admission of Jobs and Locks apart from the operator, which the
// specs start, stop and kill.
func startWebhook(ctx context.Context) {
	GinkgoHelper()
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	serveWebhook = func(ctx context.Context) {
		GinkgoHelper()
		stopWebhook = runWebhook(ctx, ctrlwebhook.Options{Host: host, Port: port, CertDir: certDir})
	}
	serveWebhook(ctx)
	DeferCleanup(func() error { return stopWebhook() })
}

func runWebhook(ctx context.Context, options ctrlwebhook.Options) (stop func() error) {
	GinkgoHelper()
	server := ctrlwebhook.NewServer(options)
	mgr, err := environment.NewManager(func(options *ctrl.Options) { options.WebhookServer = server })
	Expect(err).NotTo(HaveOccurred())
	authorizer, err := auth.NewAuthorizer(mgr.GetConfig(), mgr.GetHTTPClient())
	Expect(err).NotTo(HaveOccurred())
	(&webhook.LockAdmission{
		Client: mgr.GetClient(), LiveReader: mgr.GetAPIReader(), Limits: rules.DefaultLimits(), Clock: clock.RealClock{}, Authorizer: authorizer,
	}).SetupWithManager(mgr)
	(&webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clock.RealClock{}}).SetupWithManager(mgr)
	stop = testenv.StartManager(ctx, mgr)
	Eventually(func() error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("cache")
		}
		return server.StartedChecker()(&http.Request{})
	}).Should(Succeed())
	return stop
}
