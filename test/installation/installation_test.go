// Package installation_test installs the chart with Helm on a control plane, runs its pods in
// containers of the image, and runs the end-to-end suite against that. It needs a network
// namespace of its own, which "make install-test" makes.
package installation_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"forrst.dev/lock-operator/test/support/container"
	"forrst.dev/lock-operator/test/support/node"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	namespace = "forrst-system"
	release   = "lock-operator"
	// patience bounds a step that waits for the cluster.
	patience = 2 * time.Minute
)

// values are those in which this installation differs from the defaults: the image, the authority of
// the certificate that this control plane presents to webhooks, and limits for a suite that is one caller.
const values = `
image: {repository: localhost/lock-operator, tag: %s}
webhook:
  clientAuthority: {configMap: webhook-clients, names: [kube-apiserver]}
guards: {enabled: true}
lockPolicies: {enabled: true}
facade:
  extraArgs: [--facade-max-rate-per-caller=100000, --facade-max-rate-per-namespace=100000]
`

// cluster is a control plane without operator.
type cluster struct {
	root, kubeconfig string
	config           *rest.Config
	client           kubernetes.Interface
	kubectl          *testenv.Kubectl
	// values is the file with the values.
	values string
	// logs is the folder with the logs of the containers.
	logs string
}

func TestInstallation(t *testing.T) {
	c := startCluster(t)
	store, err := container.NewStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, store.Close()) })
	image, err := store.Load(t.Context(), filepath.Join(c.root, "bin", "image", "lock-operator.tar"))
	if err != nil {
		t.Fatal(err)
	}
	_, tag, _ := strings.Cut(image, ":")
	check(t, os.WriteFile(c.values, fmt.Appendf(nil, values, tag), 0o600))
	machine, err := node.Start(t.Context(), node.Options{
		Client: c.client, APIServer: strings.TrimPrefix(c.config.Host, "https://"), Namespace: namespace, Store: store, Logs: c.logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, machine.Stop()) })

	before := c.everything(t)
	c.prepare(t)
	abortIfFailed := func() {
		t.Helper()
		if t.Failed() {
			t.Fatalf("the end of the containers' logs:\n%s", tail(machine.Logs("lock-operator"), 4000))
		}
	}
	t.Run("installs", func(t *testing.T) {
		c.helm(t, "install", release, c.chart(), "--values", c.values, "--wait", "--timeout", patience.String())
	})
	abortIfFailed()
	t.Run("passes its own test", func(t *testing.T) {
		c.helm(t, "test", release, "--timeout", patience.String())
	})
	abortIfFailed()
	t.Run("passes the end-to-end suite", func(t *testing.T) {
		c.endToEnd(t)
	})
	abortIfFailed()
	t.Run("upgrades, keeping what is held", func(t *testing.T) {
		c.kubectlRun(t, heldLock, "create", "-f", "-")
		c.helm(t, "upgrade", release, c.chart(), "--values", c.values, "--set", "settings.logLevel=debug", "--wait", "--timeout", patience.String())
		c.helm(t, "test", release, "--timeout", patience.String())
	})
	abortIfFailed()
	t.Run("rolls back, keeping what is held", func(t *testing.T) {
		c.helm(t, "rollback", release, "1", "--wait", "--timeout", patience.String())
		c.helm(t, "test", release, "--timeout", patience.String())
		c.kubectlRun(t, "", "get", "lock", "held")
	})
	abortIfFailed()
	t.Run("is not uninstalled while a lock is held", func(t *testing.T) {
		output, err := c.tryHelm(t.Context(), "uninstall", release, "--wait", "--timeout", patience.String())
		if err == nil {
			t.Fatalf("it was: %s", output)
		}
		if !strings.Contains(machine.Logs("lock-operator-uninstall"), "held") {
			t.Errorf("the log of the check does not name the lock")
		}
		c.kubectlRun(t, "", "delete", "lock", "held")
	})
	abortIfFailed()
	t.Run("leaves nothing but the CRD", func(t *testing.T) {
		c.helm(t, "uninstall", release, "--wait", "--timeout", patience.String())
		c.kubectlRun(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
		c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
		for object := range c.everything(t) {
			if !before[object] {
				t.Errorf("left: %s", object)
			}
		}
	})
}

const heldLock = "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: held}\nspec: {key: held, ttl: 1h}\n"

// startCluster starts the control plane with a simulated node, on which pods are scheduled.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dev")
	c := &cluster{root: root, kubeconfig: filepath.Join(dir, "kubeconfig"), values: filepath.Join(t.TempDir(), "values.yaml"), logs: t.TempDir()}
	var output bytes.Buffer
	command := exec.Command(filepath.Join(root, "bin", "devcluster"), "run", "--dir", dir, "--operator=", "--nodes=1", //nolint:noctx // ended by a signal
		"--binaries", testenv.Assets(root), "--kwok", filepath.Join(root, "bin", "kwok"))
	command.Stdout, command.Stderr = &output, &output
	check(t, command.Start())
	t.Cleanup(func() {
		check(t, command.Process.Signal(syscall.SIGTERM))
		check(t, command.Wait())
	})
	await(t, func() error {
		_, err := os.Stat(filepath.Join(dir, "cluster.json"))
		return err
	})
	c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	check(t, err)
	c.config.QPS = -1
	c.client, err = kubernetes.NewForConfig(c.config)
	check(t, err)
	c.kubectl = testenv.NewKubectl(testenv.Assets(root), c.kubeconfig)
	return c
}

func (c *cluster) chart() string { return filepath.Join(c.root, "charts", "lock-operator") }

// prepare makes what an administrator brings: the namespace and the authority of the API server's
// certificate as a client of webhooks.
func (c *cluster) prepare(t *testing.T) {
	t.Helper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}, metav1.CreateOptions{})
	check(t, err)
	authority, err := os.ReadFile(filepath.Join(filepath.Dir(c.kubeconfig), "pki", "webhook-client-ca.crt"))
	check(t, err)
	_, err = c.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook-clients"}, Data: map[string]string{"ca.crt": string(authority)},
	}, metav1.CreateOptions{})
	check(t, err)
}

// endToEnd runs those specs of test/e2e that need no cluster of their own, as a caller with a token.
func (c *cluster) endToEnd(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	_, err := c.client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tester"}}, metav1.CreateOptions{})
	check(t, err)
	_, err = c.client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tester"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tester", Namespace: "default"}},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		c.kubectlRun(t, "", "delete", "--namespace=default", "serviceaccount/tester", "rolebinding/tester")
	})
	issued, err := c.client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "tester", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"lock-operator.forrst.dev"}},
	}, metav1.CreateOptions{})
	check(t, err)
	authority, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, "lock-operator-authority", metav1.GetOptions{})
	check(t, err)
	service, err := c.client.CoreV1().Services(namespace).Get(ctx, "lock-operator-facade", metav1.GetOptions{})
	check(t, err)
	const host = "lock-operator-facade.forrst-system.svc"
	c.nameAddress(t, service.Spec.ClusterIP, host)

	folder := t.TempDir()
	token, ca := filepath.Join(folder, "token"), filepath.Join(folder, "ca.crt")
	check(t, os.WriteFile(token, []byte(issued.Status.Token), 0o600))
	check(t, os.WriteFile(ca, []byte(authority.Data["ca.crt"]), 0o600))
	command := exec.CommandContext(ctx, filepath.Join(c.root, "bin", "test", "e2e.test"), "-ginkgo.label-filter=installed", "-ginkgo.no-color")
	command.Dir = filepath.Join(c.root, "test", "e2e")
	command.Env = append(os.Environ(), "E2E_KUBECONFIG="+c.kubeconfig, "E2E_FACADE=https://"+host, "E2E_FACADE_CA="+ca,
		"E2E_TOKEN="+token, "E2E_HOLDER=system:serviceaccount:default:tester", "E2E_LOGS="+c.logs)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	t.Logf("%s", tail(string(output), 400))
}

// nameAddress makes this process and its children find the address under the name, as pods do by the
// cluster's DNS. The mount namespace of the test ends with it.
func (c *cluster) nameAddress(t *testing.T, address, name string) {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "hosts")
	check(t, os.WriteFile(hosts, fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", address, name), 0o644))
	check(t, syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, ""))
	t.Cleanup(func() { check(t, syscall.Unmount("/etc/hosts", syscall.MNT_DETACH)) })
}

func (c *cluster) helm(t *testing.T, arguments ...string) {
	t.Helper()
	started := time.Now()
	output, err := c.tryHelm(t.Context(), arguments...)
	if err != nil {
		t.Fatalf("helm %s: %v: %s", arguments[0], err, output)
	}
	t.Logf("helm %s took %.1fs", arguments[0], time.Since(started).Seconds())
}

func (c *cluster) tryHelm(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(c.root, "bin", "helm"), append(arguments, "--namespace", namespace)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (c *cluster) kubectlRun(t *testing.T, stdin string, arguments ...string) {
	t.Helper()
	if output, err := c.kubectl.Run(context.WithoutCancel(t.Context()), stdin, arguments...); err != nil {
		t.Fatalf("kubectl %s: %v: %s", arguments[0], err, output)
	}
}

// everything returns all objects by their kinds, namespaces and names, except what comes and goes by itself.
func (c *cluster) everything(t *testing.T) map[string]bool {
	t.Helper()
	lists, err := c.client.Discovery().ServerPreferredResources()
	check(t, err)
	found := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !strings.Contains(strings.Join(resource.Verbs, " "), "list") || resource.Kind == "Event" {
				continue
			}
			group, _, isGroup := strings.Cut(list.GroupVersion, "/")
			name := resource.Name
			if isGroup {
				name += "." + group
			}
			output, err := c.kubectl.Run(t.Context(), "", "get", name, "--all-namespaces", "--ignore-not-found", "-o",
				`jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
			check(t, err)
			for line := range strings.Lines(output) {
				found[name+" "+strings.TrimSpace(line)] = true
			}
		}
	}
	return found
}

func await(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %s: %v", patience, err)
		case <-ticker.C:
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tail(text string, length int) string { return text[max(0, len(text)-length):] }
