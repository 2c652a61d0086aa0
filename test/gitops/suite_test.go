// Package gitops_test proves that a Lock may be a manifest in a repository: the real
// kubectl applies it to a real API server, with the operator's webhook and reaper in
// force, under the identities that GitOps controllers have.
package gitops_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

const timeout = 60 * time.Second

func TestGitOps(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "GitOps")
}

// The identities under which Flux and Argo CD apply. By kubectl both have the role
// lock-operator-edit and nothing else.
const (
	flux = "system:serviceaccount:flux-system:kustomize-controller"
	argo = "system:serviceaccount:argocd:argocd-application-controller"
)

var (
	environment *fixture.Cluster
	manager     *testenv.ControllerManager
	node        *kubelet.Kubelet
	admin       client.Client
	kubectl     = map[string]*testenv.Kubectl{}
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
	// Argo CD prunes in the foreground, which the garbage collector completes.
	var err error
	manager, err = environment.StartControllerManager("garbage-collector-controller", "job-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Stop)
	clientset, err := kubernetes.NewForConfig(environment.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	node, err = kubelet.Start(ctx, clientset)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { node.Stop() })

	startOperator(ctx)
	for _, user := range []string{flux, argo} {
		_, kubectl[user], err = environment.User(user, "system:serviceaccounts", "system:authenticated")
		Expect(err).NotTo(HaveOccurred())
		_, err = environment.Admin.Kubectl.Run(ctx, "", "create", "clusterrolebinding", user, "--clusterrole=lock-operator-edit", "--user="+user)
		Expect(err).NotTo(HaveOccurred())
	}
})

// startOperator runs the operator's own binary with controllers and webhook, under the
// identity that config/ gives it, until the suite ends.
func startOperator(ctx context.Context) {
	GinkgoHelper()
	operator := environment.Operator()
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	fixture.StartOperator(ctx, operator.Kubectl, append(environment.WebhookFlags(host, port, certDir),
		"--components=controller,webhook",
		"--guards",
		"--leader-elect=false",
		"--clock-skew-allowance=0s", // There is one clock.
	)...)
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

func get(ctx context.Context, name string) *v1alpha1.Lock {
	GinkgoHelper()
	lock := &v1alpha1.Lock{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, lock)).To(Succeed())
	return lock
}
