package installation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// variant is an installation that is used, upgraded and removed.
type variant struct {
	name string
	// values are those besides the image.
	values string
	// prepare brings what the variant needs, and use tries what it has of its own. Both may be nil.
	prepare, use func(c *cluster, t *testing.T)
	// isSpread: each component has three replicas on nodes of their own, after an upgrade as well.
	isSpread bool
	// isForced: it is removed unchecked with its CRD, while locks are held.
	isForced bool
	// stays are the objects that stay in the namespace besides those of each installation.
	stays []string
}

var variants = []variant{
	{name: "default values", use: (*cluster).shareLines},
	{name: "high availability", values: "highAvailability: true\n", use: (*cluster).evict, isSpread: true},
	{name: "certificates of cert-manager", values: "certificates: {provider: cert-manager}\nguards: {enabled: true}\n", prepare: (*cluster).startCertManager, use: (*cluster).useCertManager, stays: secretsOfCertManager},
	{name: "every optional part", values: everyPart, prepare: (*cluster).bringPrometheus, use: (*cluster).followReferences, isForced: true},
}

// components are those that have pods.
var components = []string{"facade", "controllers", "webhook"}

// secretsOfCertManager are not deleted with their Certificates.
var secretsOfCertManager = []string{
	"secrets. " + namespace + "/lock-operator-authority",
	"secrets. " + namespace + "/lock-operator-controllers",
	"secrets. " + namespace + "/lock-operator-facade",
	"secrets. " + namespace + "/lock-operator-webhook",
}

// everyPart are values that make each object of the chart appear but those of cert-manager.
const everyPart = `
guards: {enabled: true}
lockPolicies: {enabled: true}
priorityClass: {create: true}
facade:
  routes: {routes: [{functions: [charge], url: "https://charge.shop.svc"}]}
settings: {holderKinds: [Deployment.apps]}
holderRules:
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}
metrics:
  serviceMonitor: {enabled: true, reader: {name: prometheus, namespace: monitoring}}
  alerts: {enabled: true}
  dashboard: {enabled: true}
ingress: {enabled: true, hosts: [locks.example.com]}
httpRoute: {enabled: true, hostnames: [locks.example.com], parentRefs: [{name: public}]}
`

func (c *cluster) try(t *testing.T, v variant, before map[string]bool) {
	t.Helper()
	t.Run("from its installation to its end", func(t *testing.T) {
		c.prepare(t)
		if v.prepare != nil {
			v.prepare(c, t)
		}
		// test/upgrade waits for webhooks that stop.
		values := c.write(t, "values.yaml", v.values+"webhook: {extraArgs: [--webhook-drain-timeout=0s]}\n")
		c.helm(t, "install", release, c.chart(), "--values", values, "--wait", "--timeout", patience.String())
		c.helm(t, "test", release, "--timeout", patience.String())
		c.runLockedJob(t)
		if v.use != nil {
			v.use(c, t)
		}
		c.kubectlRun(t, heldLock, "create", "-f", "-")
		c.helm(t, "upgrade", release, c.chart(), "--values", values, "--set", "settings.logLevel=debug", "--wait", "--timeout", patience.String())
		if v.isSpread {
			for _, component := range components {
				await(t, func() error { _, err := c.spread(t.Context(), component); return err })
			}
		}
		c.helm(t, "test", release, "--timeout", patience.String())
		if v.isForced {
			c.forceUninstallation(t)
			return
		}
		c.kubectlRun(t, "", "delete", "lock", "held")
		c.helm(t, "uninstall", release, "--wait", "--timeout", patience.String())
		c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
	})
	c.stopIfFailed(t)
	c.mustBeAsBefore(t, before, v.stays...)
}

// runLockedJob has a simulated node run a Job under a lock to its end, after which the lock is free.
func (c *cluster) runLockedJob(t *testing.T) {
	t.Helper()
	c.kubectlRun(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: short, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: short}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`, "create", "-f", "-")
	c.kubectlRun(t, "", "wait", "job/short", "--for=condition=Complete", "--timeout", patience.String())
	c.kubectlRun(t, "", "wait", "lock/short", "--for=delete", "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "job", "short")
}

// forceUninstallation uninstalls what has locks and Jobs under locks, as docs/install.md says: checked, Helm
// refuses; unchecked, it does not wait for finalizers that no operator takes off any more.
func (c *cluster) forceUninstallation(t *testing.T) {
	t.Helper()
	c.createLockedJobs(t)
	c.refuseToUninstall(t, `Lock default/held is held by "lock-operator-dev"`)
	c.helm(t, "uninstall", release, "--no-hooks", "--wait", "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "job", release+"-uninstall", "--namespace", namespace, "--timeout", patience.String())
	c.kubectlRun(t, "", "delete", "crd", "locks.forrst.dev", "--timeout", patience.String())
	for _, job := range []string{"running", "waiting"} {
		c.kubectlRun(t, "", "patch", "job", job, "--type=merge", `-p={"metadata":{"finalizers":null}}`)
		c.kubectlRun(t, "", "delete", "job", job, "--timeout", patience.String())
	}
}

// evict evicts a pod of each component, and then another one, which the disruption budget forbids. Meanwhile the
// others serve.
func (c *cluster) evict(t *testing.T) {
	t.Helper()
	for _, component := range components {
		pods, err := c.spread(t.Context(), component)
		check(t, err)
		await(t, func() error { return c.evictPod(t.Context(), pods[0].Name) })
		if err := c.evictPod(t.Context(), pods[1].Name); !apierrors.IsTooManyRequests(err) {
			t.Errorf("evicting a second pod of %s: %v", component, err)
		}
	}
	c.helm(t, "test", release, "--timeout", patience.String())
	c.kubectlRun(t, "", "rollout", "status", "deployment", "--namespace", namespace, "--timeout", patience.String())
}

// spread returns the pods of a component that do not stop, which must be three on nodes of their own.
func (c *cluster) spread(ctx context.Context, component string) ([]corev1.Pod, error) {
	found, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(found.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
		if pod.Spec.PriorityClassName != "system-cluster-critical" {
			return nil, fmt.Errorf("%s has the priority class %q", pod.Name, pod.Spec.PriorityClassName)
		}
	}
	if len(pods) != 3 || len(nodes) != 3 {
		return nil, fmt.Errorf("%d pods of %s are on %d nodes, want 3 on 3", len(pods), component, len(nodes))
	}
	return pods, nil
}

func (c *cluster) evictPod(ctx context.Context, name string) error {
	return c.client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}
