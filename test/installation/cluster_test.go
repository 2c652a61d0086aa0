package installation_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/container"
	"forrst.dev/lock-operator/test/support/node"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	namespace       = "forrst-system"
	release         = "lock-operator"
	controllersUser = "system:serviceaccount:" + namespace + ":lock-operator-controllers"
	// patience bounds a step that waits for the cluster.
	patience = 10 * time.Minute
	// period is how often such a step looks.
	period = 100 * time.Millisecond
)

// cluster is a control plane without operator, and a node that runs the pods of [namespace].
type cluster struct {
	root, kubeconfig string
	config           *rest.Config
	client           kubernetes.Interface
	// objects reads and writes objects of any kind.
	objects client.Client
	kubectl *testenv.Kubectl
	machine *node.Node
	// image is a file with the values that name the image.
	image string
	// logs is the folder with the logs of the containers.
	logs string
}

// startCluster starts the control plane with simulated nodes, on which pods are scheduled, with the CRDs
// of what optional parts of the chart need, and with what runs the pods.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dev")
	c := &cluster{root: root, kubeconfig: filepath.Join(dir, "kubeconfig"), logs: t.TempDir()}
	var output bytes.Buffer
	command := exec.Command(filepath.Join(root, "bin", "devcluster"), "run", "--dir", dir, "--operator=", "--nodes=3",
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
	c.defineForeignKinds(t)
	c.objects, err = client.New(c.config, client.Options{})
	check(t, err)
	c.startNode(t)
	return c
}

// defineForeignKinds applies the CRDs whose paths "make install-test" has written to a file.
func (c *cluster) defineForeignKinds(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.root, "bin", "test", "definitions"))
	check(t, err)
	for path := range strings.Lines(string(text)) {
		c.kubectlRun(t, "", "apply", "--server-side", "-f", strings.TrimSpace(path))
	}
	c.kubectlRun(t, "", "wait", "crd", "--all", "--for=condition=Established", "--timeout", patience.String())
}

// startNode loads the image, and runs with it the pods that are scheduled to any of the nodes.
func (c *cluster) startNode(t *testing.T) {
	t.Helper()
	store, err := container.NewStore()
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	image, err := store.Load(t.Context(), filepath.Join(c.root, "bin", "image", "lock-operator.tar"))
	check(t, err)
	repository, tag, _ := strings.Cut(image, ":")
	c.image = c.write(t, "image.yaml", fmt.Sprintf("image: {repository: %s, tag: %s}\n", repository, tag))
	c.machine, err = node.Start(t.Context(), node.Options{
		Client: c.client, APIServer: strings.TrimPrefix(c.config.Host, "https://"), Namespace: namespace, Store: store, Image: image, Logs: c.logs,
	})
	check(t, err)
	t.Cleanup(func() { check(t, c.machine.Stop()) })
}

func (c *cluster) chart() string { return filepath.Join(c.root, "charts", "lock-operator") }

// write writes a file that is there until the test ends, and returns its path.
func (c *cluster) write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// prepare makes what an administrator brings: the namespace and the authority of the API server's
// certificate as a client of webhooks. Both are gone when the test ends.
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
	if arguments[0] == "install" || arguments[0] == "upgrade" {
		arguments = append(arguments, "--values", c.image)
	}
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

// stopIfFailed ends a test of which a step has failed, with what the pods have to say.
func (c *cluster) stopIfFailed(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Fatalf("the end of the containers' logs:\n%s", tail(c.machine.Logs("lock-operator"), 4000))
	}
}

// staysInNamespace are the objects that are in the namespace after an uninstallation: those of Kubernetes and of
// [cluster.prepare], and what docs/install.md says is left.
var staysInNamespace = []string{
	"configmaps. " + namespace + "/kube-root-ca.crt",
	"configmaps. " + namespace + "/webhook-clients",
	"leases.coordination.k8s.io " + namespace + "/lock-operator.forrst.dev",
	"namespaces. /" + namespace,
	"serviceaccounts. " + namespace + "/default",
}

// mustBeAsBefore fails unless the cluster is as before, except for [staysInNamespace] and more of such objects. Then it
// deletes the namespace, with which these have to go.
func (c *cluster) mustBeAsBefore(t *testing.T, before map[string]bool, more ...string) {
	t.Helper()
	stays := slices.Sorted(slices.Values(slices.Concat(staysInNamespace, more)))
	await(t, func() error { // The garbage collector deletes pods and the like.
		left, err := c.since(t.Context(), before)
		if err == nil && !slices.Equal(left, stays) {
			err = fmt.Errorf("left: %q, want %q", left, stays)
		}
		return err
	})
	c.kubectlRun(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
	left, err := c.since(t.Context(), before)
	check(t, err)
	if len(left) > 0 {
		t.Errorf("left without the namespace: %q", left)
	}
}

// since returns the objects that were not there before, sorted.
func (c *cluster) since(ctx context.Context, before map[string]bool) ([]string, error) {
	now, err := c.everything(ctx)
	maps.DeleteFunc(now, func(object string, _ bool) bool { return before[object] })
	return slices.Sorted(maps.Keys(now)), err
}

// everything returns all objects by their kinds, namespaces and names, except what comes and goes by itself. It fails when
// the API server still names a kind whose definition has just been deleted.
func (c *cluster) everything(ctx context.Context) (map[string]bool, error) {
	lists, err := c.client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.config)
	config.WarningHandler = rest.NoWarnings{} // Some of all kinds are deprecated.
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !strings.Contains(strings.Join(resource.Verbs, " "), "list") || resource.Kind == "Event" {
				continue
			}
			objects, err := reader.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, object := range objects.Items {
				found[resource.Name+"."+version.Group+" "+object.Namespace+"/"+object.Name] = true
			}
		}
	}
	return found, nil
}

func await(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(period)
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
