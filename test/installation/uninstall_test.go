package installation_test

import (
	"strings"
	"testing"
)

// quota refuses pods of the namespace that name no limit of their processors.
const quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: processors}\nspec: {hard: {limits.cpu: \"20\"}}\n"

// withinQuota gives such limits to all pods but those of the hooks.
const withinQuota = `
facade: {resources: {limits: {cpu: "1"}}}
controllers: {resources: {limits: {cpu: "1"}}}
webhook: {resources: {limits: {cpu: "1"}}, extraArgs: [--webhook-drain-timeout=0s]}
`

// uninstallWithinQuota corrects a release whose check the quota refuses, and uninstalls it, as docs/install.md says.
func (c *cluster) uninstallWithinQuota(t *testing.T, before map[string]bool) {
	t.Helper()
	c.prepare(t)
	c.kubectlRun(t, quota, "create", "--namespace", namespace, "-f", "-")
	values := c.write(t, "values.yaml", withinQuota)
	c.helm(t, "install", release, c.chart(), "--values", values, "--wait", "--timeout", patience.String())
	c.failToUninstall(t, "must specify limits.cpu")
	c.helm(t, "rollback", release, "1", "--wait", "--timeout", patience.String())
	c.helm(t, "upgrade", release, c.chart(), "--values", values, "--set", "hooks.resources.limits.cpu=100m", "--wait", "--timeout", patience.String())
	c.helm(t, "test", release, "--timeout", patience.String())
	c.helm(t, "uninstall", release, "--wait", "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "resourcequota", "processors", "--namespace", namespace)
	c.mustBeAsBefore(t, before)
}

// uninstallUnstarted uninstalls a release without the check, whose pod starts no more than the others, as docs/install.md says.
func (c *cluster) uninstallUnstarted(t *testing.T, before map[string]bool) {
	t.Helper()
	c.prepare(t)
	c.helm(t, "install", release, c.chart(), "--set", "image.tag=typo")
	c.failToUninstall(t, ":typo")
	c.helm(t, "uninstall", release, "--no-hooks", "--wait", "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "job", release+"-uninstall", "--namespace", namespace, "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
	// There is no Lease, since no leader was elected.
	c.kubectlRun(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
	left, err := c.since(t.Context(), before)
	check(t, err)
	if len(left) > 0 {
		t.Errorf("left without the namespace: %q", left)
	}
}

// failToUninstall has Helm try, with a check that cannot run, and looks for the cause where docs/install.md says that it is.
func (c *cluster) failToUninstall(t *testing.T, cause string) {
	t.Helper()
	if output, err := c.tryHelm(t.Context(), "uninstall", release); err == nil {
		t.Fatalf("it was uninstalled: %s", output)
	}
	described, err := c.kubectl.Run(t.Context(), "", "describe", "job", release+"-uninstall", "--namespace", namespace)
	check(t, err)
	if !strings.Contains(described, cause) {
		t.Errorf("the Job of the check does not say %q: %s", cause, described)
	}
}
