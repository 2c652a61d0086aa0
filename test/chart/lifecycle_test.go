package chart_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// lock creates the lock "held" as the operator does, which no webhook judges: there is none to ask.
func (c *cluster) lock(t *testing.T, operator string, finalizers ...string) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: forrst.dev/v1alpha1
kind: Lock
metadata: {name: held, namespace: default, finalizers: [%s]}
spec: {key: held, owner: test, holder: ann, ttl: 1h, acquireTime: "2026-01-01T00:00:00.000000Z", renewTime: "2026-01-01T00:00:00.000000Z", expireTime: "2126-01-01T00:00:00.000000Z"}
`, strings.Join(finalizers, ","))
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
	cluster.lock(t, operator)
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

// TestHelmNeverDeletesTheDefinition goes back to a revision without it, of which Helm renders no template anew, and away from it by an
// upgrade, and uninstalls it.
func TestHelmNeverDeletesTheDefinition(t *testing.T) {
	const (
		namespace = "never-deleted"
		operator  = "system:serviceaccount:never-deleted:lock-operator-facade"
		crd       = "customresourcedefinition/locks.forrst.dev"
	)
	cluster := start(t)
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--create-namespace", "--set=crds.install=false")
	cluster.helm(t, "upgrade", release, chart, "--namespace="+namespace, "--set=crds.install=true")
	cluster.must(t, "wait", crd, "--for=condition=Established")
	cluster.lock(t, operator)
	for _, deletes := range [][]string{
		{"rollback", release, "1"},
		{"rollback", release, "2"},
		{"upgrade", release, chart, "--set=crds.install=false"},
		{"rollback", release, "2"},
		{"uninstall", release, "--no-hooks"},
	} {
		cluster.helm(t, append(deletes, "--namespace="+namespace)...)
		cluster.must(t, "get", "lock", "held", "-n", "default")
		if found := cluster.must(t, "get", crd, "-o=jsonpath={.metadata.deletionTimestamp}"); found != "" {
			t.Fatalf("helm %v deletes the CRD", deletes)
		}
	}
	cluster.must(t, "delete", crd, "--timeout=60s")
}
