//go:build nightly

package chart_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNightlyNothingIsLeftWithoutTheDefinition, whatever was under a lock when Helm uninstalled the release unchecked.
func TestNightlyNothingIsLeftWithoutTheDefinition(t *testing.T) {
	const (
		namespace = "without-trace"
		operator  = "system:serviceaccount:without-trace:lock-operator-facade"
	)
	cluster := start(t)
	// A policy of the installation would refuse it.
	job := `
apiVersion: batch/v1
kind: Job
metadata: {name: waiting, namespace: default, finalizers: [example.com/other, forrst.dev/lock]}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`
	if _, err := cluster.kubectl(t.Context(), job, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	cluster.helm(t, "install", release, chart, "--namespace="+namespace, "--create-namespace", "--set="+everything+",namespace.create=false")
	cluster.must(t, "wait", "customresourcedefinition/locks.forrst.dev", "--for=condition=Established")
	cluster.lock(t, operator, "example.com/other")
	cluster.helm(t, "uninstall", release, "--namespace="+namespace, "--no-hooks", "--timeout=2m")
	cluster.must(t, "delete", "customresourcedefinition/locks.forrst.dev", "--wait=false")
	cluster.documented(t, "install.md", "kubectl get jobs --all-namespaces")
	if left := cluster.must(t, "get", "job", "waiting", "-n", "default", "-o=jsonpath={.metadata.finalizers}"); left != `["example.com/other"]` {
		t.Errorf("the Job has the finalizers %s, want that of another program", left)
	}
	cluster.must(t, "patch", "job", "waiting", "-n", "default", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
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

// TestNightlyHelmTakesABundleOver installs over what kubectl has applied: nothing is replaced.
func TestNightlyHelmTakesABundleOver(t *testing.T) {
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

// TestNightlyTheReleaseMoves goes the documented way into another namespace: direct writes are refused all the while.
func TestNightlyTheReleaseMoves(t *testing.T) {
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
