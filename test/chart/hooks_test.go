package chart_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// operatorBinary is the operator that make build builds.
func operatorBinary(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join(root, "bin", "lock-operator"))
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// kubeconfigOf is that of a service account of the release.
func (c *cluster) kubeconfigOf(t *testing.T, namespace, name string) string {
	t.Helper()
	user, err := c.environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hooks returns the objects of the release that Helm's hooks have, and applies all of them but pods and Jobs.
func (c *cluster) hooks(t *testing.T, namespace string) objects {
	t.Helper()
	text, err := helm(t.Context(), "get", "hooks", release, "--namespace="+namespace, "--kubeconfig="+c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	found := parse(t, text)
	for name, object := range found {
		if object.GetKind() == "Pod" || object.GetKind() == "Job" {
			continue
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.kubectl(t.Context(), string(text), "apply", "-f", "-"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return found
}

func argumentsAt(t *testing.T, found objects, name, path string) []string {
	t.Helper()
	values, _ := found.at(t, name, path).([]any)
	arguments := make([]string, 0, len(values))
	for _, value := range values {
		arguments = append(arguments, fmt.Sprint(value))
	}
	return arguments
}

// clean removes a release, its hooks and its CRD.
func (c *cluster) clean(t *testing.T, namespace string) {
	t.Helper()
	c.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks")
	c.must(t, "delete", ownKinds, "-n", namespace, "-l", "app.kubernetes.io/name=lock-operator", "--ignore-not-found", "--timeout=60s")
}

// TestTheHooks runs what the pods of the hooks would run, as their service accounts.
func TestTheHooks(t *testing.T) {
	const (
		namespace = "hooked"
		operator  = "system:serviceaccount:hooked:lock-operator-facade"
	)
	cluster := start(t)
	binary := operatorBinary(t)
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--create-namespace")
	defer cluster.clean(t, namespace)
	cluster.must(t, "wait", "customresourcedefinition/locks.forrst.dev", "--for=condition=Established")
	hooks := cluster.hooks(t, namespace)

	t.Run("test", func(t *testing.T) {
		facade := cluster.runFacade(t, binary, namespace)
		token := filepath.Join(t.TempDir(), "token")
		text := cluster.must(t, "create", "token", "lock-operator-test", "-n", namespace, "--audience=lock-operator.forrst.dev")
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		arguments := argumentsAt(t, hooks, "Pod/lock-operator-test", "spec containers 0 args")
		for i, argument := range arguments {
			arguments[i] = strings.NewReplacer("/access/ca.crt", facade.authority, "/access/token", token,
				"https://lock-operator-facade."+namespace+".svc", facade.url).Replace(argument)
		}
		arguments = append(arguments, "--kubeconfig="+cluster.kubeconfigOf(t, namespace, "lock-operator-test"))
		// No network leads to the Service of the webhook.
		output, err := exec.CommandContext(t.Context(), binary, arguments...).CombinedOutput()
		for _, want := range []string{"A lock was acquired and released", `failed calling webhook "lock.forrst.dev"`, "What the network must allow"} {
			if err == nil || !strings.Contains(string(output), want) {
				t.Errorf("while the API server does not reach the webhook, want %q and a failure: %v: %s", want, err, output)
			}
		}
		cluster.runWebhook(t, binary, namespace)
		output, err = exec.CommandContext(t.Context(), binary, arguments...).CombinedOutput()
		if err != nil || !strings.Contains(string(output), "The API server asked the webhook") {
			t.Errorf("%v: %s", err, output)
		}
		if left := cluster.must(t, "get", "locks", "-n", namespace, "-o=name"); strings.Contains(left, "trial") {
			t.Errorf("it leaves %s", left)
		}
		cluster.must(t, "delete", "mutatingwebhookconfiguration", "lock-operator")
		output, err = exec.CommandContext(t.Context(), binary, arguments...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "check that the webhook is installed") {
			t.Errorf("without the webhook configuration: %v: %s", err, output)
		}
		cluster.must(t, "auth", "can-i", "get", "locks.forrst.dev", "-n", namespace, "--as=system:serviceaccount:"+namespace+":lock-operator-test")
		for _, verb := range []string{"update", "patch", "delete"} {
			if _, err := cluster.kubectl(t.Context(), "", "auth", "can-i", verb, "locks.forrst.dev", "-n", namespace, "--as=system:serviceaccount:"+namespace+":lock-operator-test"); err == nil {
				t.Errorf("it may %s locks past the façade", verb)
			}
		}
		output, err = exec.CommandContext(t.Context(), binary, append(arguments, "--namespace=default")...).CombinedOutput()
		if err == nil {
			t.Errorf("it may take locks elsewhere: %s", output)
		}
	})

	t.Run("uninstall", func(t *testing.T) {
		kubeconfig := cluster.kubeconfigOf(t, namespace, "lock-operator-uninstall")
		arguments := append(argumentsAt(t, hooks, "Job/lock-operator-uninstall", "spec template spec containers 0 args"), "--kubeconfig="+kubeconfig)
		check := func() (string, error) {
			output, err := exec.CommandContext(t.Context(), binary, arguments...).CombinedOutput()
			return string(output), err
		}
		if output, err := check(); err != nil {
			t.Fatalf("with nothing under a lock: %v: %s", err, output)
		}
		cluster.lock(t, operator)
		if output, err := check(); err == nil || !strings.Contains(output, `Lock default/held is held by "ann"`) {
			t.Errorf("with a lock: %v: %s", err, output)
		}
		cluster.must(t, "delete", "lock", "held", "-n", "default", "--as="+operator)
		if output, err := check(); err != nil {
			t.Errorf("after its release: %v: %s", err, output)
		}
	})
}

// TestTheRightsOfHooks holds the roles of the hooks against the table in docs/operations.md.
func TestTheRightsOfHooks(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rendered := render(t)
	rows := 0
	for role, where := range map[string]string{"Role/lock-operator-test": "own namespace", "ClusterRole/lock-operator-uninstall": "everywhere"} {
		object, err := json.Marshal(rendered[role])
		if err != nil {
			t.Fatal(err)
		}
		var found rbacv1.ClusterRole
		if err := json.Unmarshal(object, &found); err != nil {
			t.Fatal(err)
		}
		for _, rule := range found.Rules {
			row := "\n| `" + found.Name + "` | `" + rule.APIGroups[0] + "/" + rule.Resources[0] + "` | " + where + " | `" + strings.Join(rule.Verbs, "`, `") + "` | "
			if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || !strings.Contains(string(page), row) {
				t.Errorf("docs/operations.md has no row %s", row)
			}
			rows++
		}
		if policy := rendered[role].GetAnnotations()["helm.sh/hook-delete-policy"]; policy != "before-hook-creation,hook-succeeded,hook-failed" {
			t.Errorf("Helm deletes %s by %q", role, policy)
		}
	}
	if documented := strings.Count(string(page), "\n| `lock-operator-test` | `") + strings.Count(string(page), "\n| `lock-operator-uninstall` | `"); documented != rows {
		t.Errorf("docs/operations.md has %d rows of hooks, want %d", documented, rows)
	}
}

type runningFacade struct{ url, authority string }

// runFacade runs the façade by the arguments of its Deployment, until the end of the test.
func (c *cluster) runFacade(t *testing.T, binary, namespace string) runningFacade {
	t.Helper()
	folder, certificate := certificates(t)
	address := freeAddress(t)
	arguments := render(t).arguments(t, "facade")
	for i, argument := range arguments {
		arguments[i] = strings.NewReplacer("/certs/", folder+"/", "$(POD_NAMESPACE)", namespace, ":8443", address).Replace(argument)
	}
	c.run(t, binary, namespace, "lock-operator-facade", append(arguments, "--peers-bind-address=0", "--health-probe-bind-address=0", "--facade-shutdown-delay=0s"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	awaitAnswer(t, client, "https://"+address+"/openapi.json")
	return runningFacade{url: "https://" + address, authority: filepath.Join(folder, "tls.crt")}
}

// runWebhook runs the webhook by the arguments of its Deployment, until the end of the test, where the API server reaches it.
func (c *cluster) runWebhook(t *testing.T, binary, namespace string) {
	t.Helper()
	folder, certificate := certificates(t)
	address, probes := freeAddress(t), freeAddress(t)
	arguments := render(t).arguments(t, "webhook")
	for i, argument := range arguments {
		arguments[i] = strings.NewReplacer("-cert-dir=/certs", "-cert-dir="+folder, "$(POD_NAMESPACE)", namespace,
			"$(FACADE_USER)", "system:serviceaccount:"+namespace+":lock-operator-facade",
			"$(CONTROLLERS_USER)", "system:serviceaccount:"+namespace+":lock-operator-controllers").Replace(argument)
	}
	c.run(t, binary, namespace, "lock-operator-webhook", append(arguments, "--webhook-bind-address="+address, "--health-probe-bind-address="+probes,
		"--webhook-shutdown-delay=0s", "--webhook-drain-timeout=0s"))
	awaitAnswer(t, http.DefaultClient, "http://"+probes+"/readyz")
	c.must(t, "patch", "mutatingwebhookconfiguration", "lock-operator", "--type=json", fmt.Sprintf(
		`-p=[{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":"https://%s/mutate-forrst-dev-v1alpha1-lock","caBundle":%q}}]`,
		address, base64.StdEncoding.EncodeToString(certificate)))
}

// run runs the operator as the service account, until the end of the test.
func (c *cluster) run(t *testing.T, binary, namespace, account string, arguments []string) {
	t.Helper()
	// It gets the time to stop after the context of the test has ended.
	command := exec.Command(binary, append(arguments, "--metrics-bind-address=0", "--kubeconfig="+c.kubeconfigOf(t, namespace, account))...)
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("%s: %v: %s", account, err, log.String())
		}
	})
}

// awaitAnswer returns when the URL is answered with 200.
func awaitAnswer(t *testing.T, client *http.Client, url string) {
	t.Helper()
	isServing := func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	for deadline := time.Now().Add(time.Minute); !isServing(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not answered", url)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// certificates is a folder with a certificate for 127.0.0.1 and its key, and the certificate.
func certificates(t *testing.T) (folder string, certificate []byte) {
	t.Helper()
	folder = t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, certificate
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
