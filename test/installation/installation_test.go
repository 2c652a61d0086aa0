// Package installation_test installs the chart with Helm on a control plane, runs its pods in
// containers of the image, and runs the end-to-end suite against that. It needs a network
// namespace of its own, which "make install-test" makes.
package installation_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tested are the values of the installation that the end-to-end suite runs against: the authority of
// the certificate that this control plane presents to webhooks, and limits for a suite that is one caller.
const tested = `
webhook:
  extraArgs: [--webhook-drain-timeout=0s] # test/upgrade waits for webhooks that stop.
  clientAuthority: {configMap: webhook-clients, names: [kube-apiserver]}
guards: {enabled: true}
lockPolicies: {enabled: true}
facade:
  extraArgs: [--facade-max-rate-per-caller=100000]
`

func TestInstallation(t *testing.T) {
	c := startCluster(t)
	before, err := c.everything(t.Context())
	check(t, err)
	ran := 0
	t.Run("under test", func(t *testing.T) { ran++; c.testThoroughly(t, before) })
	for _, each := range variants {
		if t.Failed() {
			break
		}
		t.Run(each.name, func(t *testing.T) { ran++; c.try(t, each, before) })
	}
	t.Run("a quota that refuses the check", func(t *testing.T) { ran++; c.uninstallWithinQuota(t, before) })
	t.Run("pods that never start", func(t *testing.T) { ran++; c.uninstallUnstarted(t, before) })
	if ran == 0 {
		t.Error("INSTALLATIONS names no installation")
	}
}

// testThoroughly runs the end-to-end suite, and has Helm do everything that it can.
func (c *cluster) testThoroughly(t *testing.T, before map[string]bool) {
	t.Helper()
	c.prepare(t)
	values := c.write(t, "values.yaml", tested)
	t.Run("installs", func(t *testing.T) {
		c.helm(t, "install", release, c.chart(), "--values", values, "--wait", "--timeout", patience.String())
	})
	c.stopIfFailed(t)
	t.Run("passes its own test", func(t *testing.T) {
		c.helm(t, "test", release, "--timeout", patience.String())
	})
	c.stopIfFailed(t)
	t.Run("passes the end-to-end suite", func(t *testing.T) {
		c.endToEnd(t)
	})
	c.stopIfFailed(t)
	t.Run("upgrades, keeping what is held", func(t *testing.T) {
		c.kubectlRun(t, heldLock, "create", "-f", "-")
		c.helm(t, "upgrade", release, c.chart(), "--values", values, "--set", "settings.logLevel=debug", "--wait", "--timeout", patience.String())
		c.helm(t, "test", release, "--timeout", patience.String())
	})
	c.stopIfFailed(t)
	t.Run("rolls back, keeping what is held", func(t *testing.T) {
		c.helm(t, "rollback", release, "1", "--wait", "--timeout", patience.String())
		c.helm(t, "test", release, "--timeout", patience.String())
		c.kubectlRun(t, "", "get", "lock", "held")
	})
	c.stopIfFailed(t)
	t.Run("is not uninstalled while something is under a lock", func(t *testing.T) {
		c.createLockedJobs(t)
		c.refuseToUninstall(t, `Lock default/held is held by "lock-operator-dev"`)
		// The operator is there, so it lets go of what is deleted.
		c.kubectlRun(t, "", "delete", "jobs", "--all", "--timeout", patience.String())
		c.kubectlRun(t, "", "delete", "lock", "held")
	})
	c.stopIfFailed(t)
	t.Run("leaves nothing but the CRD", func(t *testing.T) {
		c.helm(t, "uninstall", release, "--wait", "--timeout", patience.String())
		c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
		c.mustBeAsBefore(t, before)
	})
}

const heldLock = "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: held}\nspec: {key: held, ttl: 1h}\n"

// lockedJobs are a Job that holds a lock and never ends, since no node can run its pod, and one that waits for it.
const lockedJobs = `
apiVersion: batch/v1
kind: Job
metadata: {name: running, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: contended}}
spec: {template: {spec: {restartPolicy: Never, nodeSelector: {no: node}, containers: [{name: work, image: work}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: waiting, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: contended}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`

// createLockedJobs returns when one of [lockedJobs] holds the lock.
func (c *cluster) createLockedJobs(t *testing.T) {
	t.Helper()
	running, waiting, _ := strings.Cut(lockedJobs, "---\n")
	c.kubectlRun(t, running, "create", "-f", "-")
	c.kubectlRun(t, "", "wait", "job/running", "--for=jsonpath={.spec.suspend}=false", "--timeout", patience.String())
	c.kubectlRun(t, waiting, "create", "-f", "-")
}

// refuseToUninstall has Helm try, with [lockedJobs] there, and checks that the reasons are told.
func (c *cluster) refuseToUninstall(t *testing.T, reasons ...string) {
	t.Helper()
	before := c.machine.Logs(release + "-uninstall")
	output, err := c.tryHelm(t.Context(), "uninstall", release, "--wait", "--timeout", patience.String())
	if err == nil {
		t.Fatalf("it was uninstalled: %s", output)
	}
	// Helm keeps it, since it tells why.
	c.kubectlRun(t, "", "get", "job", release+"-uninstall", "--namespace", namespace)
	log := c.machine.Logs(release + "-uninstall")
	for _, reason := range append(reasons, "Job default/running has the finalizer forrst.dev/lock", "Job default/waiting has the finalizer forrst.dev/lock",
		fmt.Sprintf("Lock default/contended is held by %q", controllersUser)) {
		if strings.Count(log, reason) <= strings.Count(before, reason) {
			t.Errorf("the check does not say %q: %s", reason, log)
		}
	}
	c.helm(t, "test", release, "--timeout", patience.String())
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
	authority, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, "lock-operator-authority", metav1.GetOptions{})
	check(t, err)
	service, err := c.client.CoreV1().Services(namespace).Get(ctx, "lock-operator-facade", metav1.GetOptions{})
	check(t, err)
	const host = "lock-operator-facade.forrst-system.svc"
	c.nameAddress(t, service.Spec.ClusterIP, host)

	token := c.write(t, "token", c.token(t, "default", "tester", "lock-operator.forrst.dev"))
	ca := c.write(t, "ca.crt", authority.Data["ca.crt"])
	command := exec.CommandContext(ctx, filepath.Join(c.root, "bin", "test", "e2e.test"), "-ginkgo.seed="+cmp.Or(os.Getenv("SEED"), "1"),
		"-ginkgo.label-filter=installed", "-ginkgo.no-color")
	command.Dir = filepath.Join(c.root, "test", "e2e")
	command.Env = append(os.Environ(), "E2E_KUBECONFIG="+c.kubeconfig, "E2E_FACADE=https://"+host, "E2E_FACADE_CA="+ca,
		"E2E_TOKEN="+token, "E2E_HOLDER=system:serviceaccount:default:tester", "E2E_LOGS="+c.logs)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	t.Logf("%s", tail(string(output), 400))
}

// token issues a token of a service account. Without an audience it is for the API server.
func (c *cluster) token(t *testing.T, namespace, account string, audiences ...string) string {
	t.Helper()
	issued, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
	}, metav1.CreateOptions{})
	check(t, err)
	return issued.Status.Token
}
