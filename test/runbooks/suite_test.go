// Package runbooks_test tries docs/runbooks.md: each spec brings about what a runbook is for, on a real API server
// with etcd and kube-controller-manager, runs the commands that the document prints, one block after the other and
// all of them, and checks what they achieve. Only names are replaced.
package runbooks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

// specTimeout is longer than any runbook takes.
const specTimeout = 10 * time.Minute

// patience bounds what must happen. Namespaces and Jobs take Kubernetes some seconds.
const patience = 90 * time.Second

func TestRunbooks(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Runbooks")
}

var (
	environment *fixture.Cluster
	// root may do everything; deployer and stranger may write locks and objects and force nothing; onCall is in the
	// group that a runbook gives a right to.
	root, deployer, stranger, onCall fixture.Identity
	node                             *kubelet.Kubelet
	// tools is the folder of etcdctl and etcdutl.
	tools string
	// facade is the URL of the façade, whose locks are in the namespace "default".
	facade string
)

// Deployments of the operator.
const (
	controllers = "lock-operator-controllers"
	webhook     = "lock-operator-webhook"
)

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	tools, err = testenv.EtcdTools(ctx)
	Expect(err).NotTo(HaveOccurred())
	program, err := testenv.Build(ctx, "cmd/lock-operator")
	Expect(err).NotTo(HaveOccurred())

	environment = fixture.Start(ctx)
	root = environment.Admin
	environment.AllowGroup(ctx, "writers", []string{"", "apps", "batch"}, []string{"*"}, []string{"*"})
	deployer = environment.Identity("deployer", "writers", testenv.TestersGroup)
	stranger = environment.Identity("stranger", testenv.TestersGroup)
	onCall = environment.Identity("ann", "on-call")

	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	facade = "http://" + fixture.FreeAddress(ctx)
	startFleet(ctx, program, map[string][]string{
		controllers: {"--components=controller", "--leader-elect=false"},
		webhook:     append(environment.WebhookFlags(host, port, certDir), "--components=webhook", "--guards"),
		"lock-operator-facade": {
			"--components=facade", "--facade-auth=none", "--facade-shutdown-delay=0s",
			"--facade-bind-address=" + strings.TrimPrefix(facade, "http://"),
		},
	})

	manager, err := environment.StartControllerManager("job-controller", "garbage-collector-controller", "namespace-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	clientset, err := kubernetes.NewForConfig(root.Config)
	Expect(err).NotTo(HaveOccurred())
	node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(node.Stop)
})

var _ = AfterEach(func() { Expect(node.Violations()).To(BeEmpty()) })
