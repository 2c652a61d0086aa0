package chart_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownKinds are those of the objects that an installation has.
const ownKinds = "customresourcedefinitions,deployments,services,serviceaccounts,secrets,configmaps,jobs,pods,networkpolicies,poddisruptionbudgets," +
	"roles,rolebindings,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations," +
	"validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations,priorityclasses," +
	"servicemonitors,prometheusrules,ingresses,httproutes,backendtlspolicies,certificates,issuers"

// remaining lists the objects of the installation that are there.
func (c *cluster) remaining(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.must(t, "get", ownKinds, "-A", "-l", "app.kubernetes.io/name=lock-operator", "-o", "name"))
}

// lock creates a lock as the operator does, which no webhook judges: there is none to ask.
func (c *cluster) lock(t *testing.T, operator, name string, finalizers ...string) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: forrst.dev/v1alpha1
kind: Lock
metadata: {name: %[1]s, namespace: default, finalizers: [%[2]s]}
spec: {key: %[1]s, owner: test, holder: ann, ttl: 1h, acquireTime: "2026-01-01T00:00:00.000000Z", renewTime: "2026-01-01T00:00:00.000000Z", expireTime: "2126-01-01T00:00:00.000000Z"}
`, name, strings.Join(finalizers, ","))
	if _, err := c.kubectl(t.Context(), manifest, "create", "--as="+operator, "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// formerChart unpacks the chart of the revision that test/upgrade upgrades from.
func formerChart(t *testing.T) string {
	t.Helper()
	revision := os.Getenv("UPGRADE_FROM")
	if revision == "" {
		content, err := os.ReadFile(root + "/test/upgrade/from")
		if err != nil {
			t.Fatal(err)
		}
		revision = strings.TrimSpace(string(content))
	}
	folder := t.TempDir()
	archive := filepath.Join(folder, "archive.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--format=tar", "--output=" + archive, revision, "charts/lock-operator"},
		{"tar", "-C", folder, "-xf", archive},
	} {
		if output, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, output)
		}
	}
	return filepath.Join(folder, "charts", "lock-operator")
}

func TestInstallUpgradeRollBackAndUninstall(t *testing.T) {
	const (
		namespace = "life-cycle"
		operator  = "system:serviceaccount:life-cycle:lock-operator-facade"
		crd       = "customresourcedefinition/locks.forrst.dev"
		fields    = "-o=jsonpath={.spec.versions[*].schema.openAPIV3Schema.properties.spec.properties}"
		replicas  = "-o=jsonpath={.spec.replicas}"
		arguments = "-o=jsonpath={.spec.template.spec.containers[0].args}"
		budget    = "-o=jsonpath={.spec.minAvailable}/{.spec.maxUnavailable}"
		authority = "-o=jsonpath={.webhooks[0].clientConfig.caBundle},{.webhooks[1].clientConfig.caBundle}"
	)
	cluster := start(t)
	cluster.helm(t, "install", release, formerChart(t), "--namespace="+namespace, "--create-namespace", "--set=metrics.serviceMonitor.enabled=true,settings.maxTTL=2h")
	uid := cluster.must(t, "get", crd, "-o=jsonpath={.metadata.uid}")
	formerFields := cluster.must(t, "get", crd, fields)
	formerBudget := cluster.must(t, "get", "poddisruptionbudget/lock-operator-facade", "-n", namespace, budget)
	cluster.must(t, "wait", crd, "--for=condition=Established")
	cluster.lock(t, operator, "held")
	// What the operator or cert-manager writes into the objects of the chart has to survive an upgrade.
	cluster.must(t, "patch", "mutatingwebhookconfiguration", release, "--field-manager=operator", "--type=json",
		`-p=[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"Cg=="},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"Cg=="}]`)

	cluster.helm(t, "upgrade", release, chart, "--namespace="+namespace, "--reset-then-reuse-values", "--set=highAvailability=true,guards.enabled=true,metrics.serviceMonitor.enabled=false")
	for _, check := range []struct{ object, path, want string }{
		{crd, fields, "renewalPolicy"},
		{crd, "-o=jsonpath={.metadata.uid}", uid},
		{"deployment/lock-operator-facade", replicas, "3"},
		{"deployment/lock-operator-facade", arguments, "--max-ttl=2h"},
		{"poddisruptionbudget/lock-operator-facade", budget, "/1"},
		{"validatingwebhookconfiguration/lock-operator-guards", "-o=name", "lock-operator-guards"},
		{"mutatingwebhookconfiguration/lock-operator", authority, "Cg==,Cg=="},
		{"lock/held", "-o=jsonpath={.spec.holder}", "ann"},
	} {
		in := namespace
		if strings.HasPrefix(check.object, "lock/") {
			in = "default"
		}
		if got := cluster.must(t, "get", check.object, "-n", in, check.path); !strings.Contains(got, check.want) {
			t.Errorf("after the upgrade, %s of %s is %q, want %q", check.path, check.object, got, check.want)
		}
	}
	if found := cluster.must(t, "get", "servicemonitors", "-A", "-o=name"); strings.Contains(found, "servicemonitor") {
		t.Errorf("the upgrade leaves %s", found)
	}

	cluster.helm(t, "rollback", release, "1", "--namespace="+namespace)
	if got := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", namespace, replicas); got != "2" {
		t.Errorf("after the rollback there are %s replicas, want 2", got)
	}
	if got := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", namespace, arguments); !strings.Contains(got, "--max-ttl=2h") {
		t.Errorf("after the rollback, the façade runs with %s", got)
	}
	if got := cluster.must(t, "get", "poddisruptionbudget/lock-operator-facade", "-n", namespace, budget); got != formerBudget {
		t.Errorf("after the rollback, the budget is %s, want %s", got, formerBudget)
	}
	if got := cluster.must(t, "get", crd, fields); got != formerFields {
		t.Errorf("after the rollback, the CRD has the fields %s, want %s", got, formerFields)
	}
	if found := cluster.must(t, "get", "servicemonitors", "-n", namespace, "-o=name"); !strings.Contains(found, "servicemonitor") {
		t.Error("the rollback brings no ServiceMonitor back")
	}
	if got := cluster.must(t, "get", "mutatingwebhookconfiguration/lock-operator", authority); got != "Cg==,Cg==" {
		t.Errorf("after the rollback, the authority is %q", got)
	}
	cluster.must(t, "get", "lock", "held", "-n", "default")

	// The hook needs a node, see TestTheHooks.
	cluster.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks")
	if left := cluster.remaining(t); len(left) != 1 || !strings.Contains(left[0], "locks.forrst.dev") {
		t.Errorf("uninstalling leaves %q, want the CRD alone", left)
	}
	cluster.must(t, "get", "lock", "held", "-n", "default")
	cluster.must(t, "delete", crd, "--timeout=60s")
	if left := cluster.remaining(t); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

// TestUninstallWithTheDefinition must not hang, whatever is still under a lock.
func TestUninstallWithTheDefinition(t *testing.T) {
	const (
		namespace = "without-trace"
		operator  = "system:serviceaccount:without-trace:lock-operator-facade"
	)
	cluster := start(t)
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--create-namespace", "--set="+everything+",namespace.create=false,crds.keep=false")
	cluster.must(t, "wait", "customresourcedefinition/locks.forrst.dev", "--for=condition=Established")
	cluster.lock(t, operator, "held", "example.com/other")
	job := `
apiVersion: batch/v1
kind: Job
metadata: {name: waiting, namespace: default, finalizers: [forrst.dev/lock]}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`
	if _, err := cluster.kubectl(t.Context(), job, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	cluster.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks", "--timeout=2m")
	cluster.documented(t, "install.md", "kubectl get jobs --all-namespaces")
	cluster.must(t, "delete", "job", "waiting", "-n", "default", "--timeout=60s")
	cluster.documented(t, "install.md", "kubectl get locks.forrst.dev --all-namespaces")
	cluster.must(t, "wait", "customresourcedefinition/locks.forrst.dev", "--for=delete", "--timeout=60s")
	if left := cluster.remaining(t); len(left) != 0 {
		t.Errorf("uninstalling leaves %q", left)
	}
}

// documented runs the block of a page of docs that begins with a text, with replacements as of [strings.NewReplacer].
func (c *cluster) documented(t *testing.T, page, beginning string, replacements ...string) {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, isThere := strings.Cut(string(text), "```sh\n"+beginning)
	block, _, _ := strings.Cut(rest, "```")
	if !isThere {
		t.Fatalf("docs/%s has no block %q", page, beginning)
	}
	binaries, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.NewReplacer(replacements...).Replace(beginning+block))
	command.Dir = root
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+binaries+":"+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// TestHelmTakesABundleOver installs over what kubectl has applied: nothing is replaced.
func TestHelmTakesABundleOver(t *testing.T) {
	const namespace = "forrst-system"
	cluster := start(t)
	folder := bundles(t)
	if _, err := cluster.kubectl(t.Context(), "", "apply", "--server-side", "-f", filepath.Join(folder, "install.yaml")); err != nil {
		t.Fatal(err)
	}
	const uids = "-o=jsonpath={.metadata.uid}"
	before := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", namespace, uids)
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--take-ownership", "--force-conflicts")
	if after := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", namespace, uids); after != before {
		t.Error("the Deployment was replaced")
	}
	cluster.documented(t, "install.md", "kubectl get -f dist/install.yaml", "dist", folder)
	if after := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", namespace, uids); after != before {
		t.Error("the Deployment was replaced as kubectl gave its fields up")
	}
	if labels := cluster.must(t, "get", "namespace", namespace, "-o=jsonpath={.metadata.labels}"); !strings.Contains(labels, "pod-security") {
		t.Errorf("the namespace, which Helm has not taken over, has the labels %s", labels)
	}
	// The API server refuses a budget that has both, as while kubectl still owns the one.
	cluster.helm(t, "upgrade", release, chart, "--namespace="+namespace, "--set=facade.podDisruptionBudget.minAvailable=1")
	if got := cluster.must(t, "get", "poddisruptionbudget/lock-operator-facade", "-n", namespace, "-o=jsonpath={.spec.minAvailable}/{.spec.maxUnavailable}"); got != "1/" {
		t.Errorf("after the upgrade, the budget is %s, want 1/", got)
	}
	cluster.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks")
	cluster.must(t, "delete", "customresourcedefinition/locks.forrst.dev", "--timeout=60s")
}

// TestTheReleaseMoves goes the documented way into another namespace: direct writes are refused all the while.
func TestTheReleaseMoves(t *testing.T) {
	const (
		crd     = "customresourcedefinition/locks.forrst.dev"
		uid     = "-o=jsonpath={.metadata.uid}"
		service = "-o=jsonpath={.webhooks[*].clientConfig.service.namespace}"
		hook    = "mutatingwebhookconfiguration/lock-operator"
		moved   = "moved-again"
	)
	cluster := start(t)
	cluster.helm(t, "install", release, chart, "--namespace=moved-from", "--create-namespace", "--set=settings.maxTTL=2h")
	before := cluster.must(t, "get", crd, uid)
	cluster.documented(t, "operations.md", "kubectl delete deployments",
		"delete namespace forrst-system", "delete namespace moved-from --wait=false", "forrst-system", "moved-from", "namespace locks", "namespace moved-to")
	if got := cluster.must(t, "get", hook, service); strings.Contains(got, "moved-from") || !strings.Contains(got, "moved-to") {
		t.Errorf("the API server asks the webhook in %s", got)
	}
	if got := cluster.must(t, "get", "deployment/lock-operator-facade", "-n", "moved-to", "-o=jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(got, "--max-ttl=2h") {
		t.Errorf("the moved façade runs with %s", got)
	}

	cluster.helm(t, "uninstall", release, "--namespace=moved-to", "--no-hooks")
	if _, err := helm(t.Context(), "install", "other", chart, "--namespace="+moved, "--create-namespace", "--kubeconfig="+cluster.kubeconfig); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("got %v, want that the CRD is of another release", err)
	}
	cluster.helm(t, "install", "other", chart, "--namespace="+moved, "--create-namespace", "--take-ownership")
	if after := cluster.must(t, "get", crd, uid); after != before {
		t.Error("the CRD was replaced")
	}
	cluster.helm(t, "uninstall", "other", "--namespace="+moved, "--no-hooks")
	// No controller empties the former namespace here.
	cluster.must(t, "delete", ownKinds, "-A", "-l", "app.kubernetes.io/name=lock-operator", "--timeout=60s")
}
