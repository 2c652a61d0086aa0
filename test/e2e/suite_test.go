// Package e2e_test proves that what "make run" starts works for its users, who use plain
// HTTP and the real kubectl.
//
// The specs with the label "installed" also run against an installation that exists, which
// these environment variables name:
//
//	E2E_KUBECONFIG  an administrator's kubeconfig
//	E2E_FACADE      the URL of the façade
//	E2E_FACADE_CA   a file with the authority of its certificate
//	E2E_TOKEN       a file with a token of a service account of the namespace default that may do
//	                everything with locks there
//	E2E_HOLDER      the user name of that account
//	E2E_LOGS        a folder with the logs of the operator
package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// installed is the label of specs that need no development cluster of their own.
const installed = "installed"

const (
	startTimeout = 10 * time.Minute
	stopTimeout  = 2 * time.Minute
)

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var (
	root string
	// devcluster and operatorBinary are built by the suite.
	devcluster, operatorBinary string
	// shared is the cluster of all specs that do not break it.
	shared *cluster
	admin  client.Client
)

var _ = BeforeSuite(func(ctx context.Context) {
	ctrl.SetLogger(GinkgoLogr) // Otherwise clients that are made after 30 s print a warning.
	var err error
	root, err = testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	devcluster, err = testenv.Build(ctx, "hack/devcluster")
	Expect(err).NotTo(HaveOccurred())
	operatorBinary, err = testenv.Build(ctx, "cmd/lock-operator")
	Expect(err).NotTo(HaveOccurred())

	if os.Getenv("E2E_KUBECONFIG") != "" {
		shared = existingCluster()
		admin = shared.client()
		return
	}
	shared = startCluster()
	DeferCleanup(func() {
		shared.session.Terminate()
		Eventually(shared.session).WithTimeout(stopTimeout).Should(gexec.Exit(0))
	})
	admin = shared.client()
})

// cluster is a development cluster in a folder of its own.
type cluster struct {
	session    *gexec.Session
	dir        string
	kubeconfig string
	facade     string
	kubectl    *testenv.Kubectl
	// http sends requests to the façade, of a caller that is the holder of its locks.
	http   *http.Client
	holder string
	// logs is the folder of the components' logs.
	logs string
}

// config returns the folder of the manifests, and the flag that goes with it if the operator
// is installed under other names.
func config() (folder string, flags []string) {
	GinkgoHelper()
	if testenv.Installed("") == "" {
		return filepath.Join(root, "config"), nil
	}
	folder = GinkgoT().TempDir()
	overlay := filepath.Join(folder, "dev")
	Expect(os.Mkdir(overlay, 0o700)).To(Succeed())
	Expect(testenv.WriteOverlay(overlay, root)).To(Succeed())
	return folder, []string{"--operator-user", testenv.OperatorUser}
}

// launch starts the development cluster with the flags that "make run" uses, but
// for its folder and port.
func launch(dir, facade string, flags ...string) *gexec.Session {
	GinkgoHelper()
	folder, user := config()
	arguments := slices.Concat([]string{"run", "--dir", dir, "--facade-addr", facade, "--operator", operatorBinary,
		"--config", folder, "--binaries", testenv.Assets(root)}, user, flags)
	command := exec.Command(devcluster, arguments...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return session
}

// startCluster launches a cluster and waits until it says that it is ready.
func startCluster(flags ...string) *cluster {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), "dev")
	started := &cluster{dir: dir, session: launch(dir, "127.0.0.1:0", flags...),
		http: http.DefaultClient, holder: "system:anonymous", logs: filepath.Join(dir, "logs")}
	DeferCleanup(func() { started.session.Kill() })
	var announced struct {
		Facade     string `json:"facade"`
		Kubeconfig string `json:"kubeconfig"`
	}
	Eventually(func(g Gomega) {
		g.Expect(started.session.ExitCode()).To(Equal(-1), "the cluster ended")
		content, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(content, &announced)).To(Succeed())
	}).WithTimeout(startTimeout).WithPolling(50 * time.Millisecond).Should(Succeed())
	started.facade, started.kubeconfig = announced.Facade, announced.Kubeconfig
	started.kubectl = testenv.NewKubectl(testenv.Assets(root), announced.Kubeconfig)
	return started
}

// existingCluster is the installation that the environment names.
func existingCluster() *cluster {
	GinkgoHelper()
	authority, err := os.ReadFile(os.Getenv("E2E_FACADE_CA"))
	Expect(err).NotTo(HaveOccurred())
	token, err := os.ReadFile(os.Getenv("E2E_TOKEN"))
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(&rest.Config{BearerToken: strings.TrimSpace(string(token)), TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := os.Getenv("E2E_KUBECONFIG")
	return &cluster{
		kubeconfig: kubeconfig, facade: os.Getenv("E2E_FACADE"), kubectl: testenv.NewKubectl(testenv.Assets(root), kubeconfig),
		http: &http.Client{Transport: transport}, holder: os.Getenv("E2E_HOLDER"), logs: os.Getenv("E2E_LOGS"),
	}
}

// config is an administrator's.
func (c *cluster) config() *rest.Config {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	return config
}

func (c *cluster) client() client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	made, err := client.New(c.config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return made
}
