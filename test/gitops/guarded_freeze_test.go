package gitops_test

import (
	"context"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// shop are the objects of a namespace, as a repository has them.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "main:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {app.kubernetes.io/name: web}}
data: {color: red}
`

// autoscaler sets the replicas of the Deployment, whatever its load.
const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: other}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 5, maxReplicas: 5}
`

// fluxApply is how Flux applies a kustomization.
var fluxApply = []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"}

// The operator's own program serves the webhook here, with the flag --guards.
var _ = Describe("A change freeze that guards objects", func() {
	var namespace string
	in := func(ctx context.Context, user *testenv.Kubectl, stdin string, arguments ...string) error {
		_, err := user.Run(ctx, stdin, append([]string{"-n", namespace}, arguments...)...)
		return err
	}

	BeforeEach(func(ctx context.Context) {
		namespace = environment.Namespace(ctx, "frozen-")
		must(environment.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled))
		for _, user := range []string{flux, argo} {
			for _, role := range []string{"system:aggregate-to-edit", "system:aggregate-to-view"} {
				must(environment.Admin.Kubectl.Run(ctx, "", "-n", namespace, "create", "rolebinding", "--clusterrole="+role, "--user="+user,
					strings.NewReplacer(":", "-").Replace(role+"-"+user)))
			}
		}
		Expect(in(ctx, environment.Admin.Kubectl, shop, "apply", "-f", "-")).To(Succeed())
	})

	// freeze writes a kustomization of the sample in the namespace, with an end in the future.
	freeze := func() string {
		GinkgoHelper()
		sample, err := os.ReadFile("../../config/samples/guards/freeze.yaml")
		Expect(err).NotTo(HaveOccurred())
		text := strings.Replace(string(sample), "2027-01-04T06:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1)
		Expect(text).NotTo(Equal(string(sample)))
		path := GinkgoT().TempDir()
		write(path, "freeze.yaml", text)
		write(path, "kustomization.yaml", "namespace: "+namespace+"\nresources: [freeze.yaml]\n")
		return path
	}

	It("keeps the changes of other controllers and users out until it ends, and applies again without a difference", func(ctx context.Context) {
		path := freeze()
		Expect(in(ctx, kubectl[flux], "", append(fluxApply, "-k", path)...)).To(Succeed())
		before := must(environment.Admin.Kubectl.Run(ctx, "", "-n", namespace, "get", "lock", "freeze", "-o", "yaml", "--show-managed-fields"))
		Expect(in(ctx, kubectl[flux], "", append(fluxApply, "-k", path)...)).To(Succeed())
		Expect(must(environment.Admin.Kubectl.Run(ctx, "", "-n", namespace, "get", "lock", "freeze", "-o", "yaml", "--show-managed-fields"))).To(Equal(before))

		changed := strings.ReplaceAll(strings.ReplaceAll(shop, "main:1", "main:2"), "red", "blue")
		ways := map[string]func(context.Context, *testenv.Kubectl) error{}
		for name, arguments := range map[string][]string{
			"kubectl set image":       {"set", "image", "deployment/web", "main=main:2"},
			"kubectl scale":           {"scale", "deployment/web", "--replicas=1"},
			"kubectl rollout restart": {"rollout", "restart", "deployment/web"},
			"kubectl delete":          {"delete", "configmap/web"},
			"kubectl create service":  {"create", "service", "clusterip", "new", "--tcp=80"},
			"kubectl create cronjob":  {"create", "cronjob", "new", "--image=main:1", "--schedule=0 * * * *"},
		} {
			ways[name] = func(ctx context.Context, user *testenv.Kubectl) error { return in(ctx, user, "", arguments...) }
		}
		ways["kubectl apply"] = func(ctx context.Context, user *testenv.Kubectl) error {
			return in(ctx, user, changed, "apply", "-f", "-")
		}
		ways["an autoscaler"] = func(ctx context.Context, user *testenv.Kubectl) error {
			return in(ctx, user, autoscaler, "create", "-f", "-")
		}
		ways["server-side apply"] = func(ctx context.Context, user *testenv.Kubectl) error {
			return in(ctx, user, changed, "apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-")
		}
		Eventually(ways["kubectl scale"]).WithContext(ctx).WithArguments(kubectl[argo]).WithTimeout(timeout).Should(MatchError(ContainSubstring("is guarded")))
		for name, way := range ways {
			for _, user := range []*testenv.Kubectl{kubectl[argo], environment.Admin.Kubectl} {
				Expect(way(ctx, user)).To(MatchError(And(
					ContainSubstring(`is forbidden: it is guarded by the lock "freeze", key lock:freeze, which "`+flux+`" has held since`),
					ContainSubstring("(Year-end change freeze)"))), name)
			}
		}
		Expect(in(ctx, kubectl[argo], "", "create", "configmap", "leader")).To(Succeed(), "the state of programs is not frozen")

		By("writing as the holder")
		Expect(ways["kubectl set image"](ctx, kubectl[flux])).To(Succeed())
		Expect(in(ctx, kubectl[flux], changed, append(fluxApply, "-f", "-")...)).To(Succeed())

		By("ending it")
		Expect(in(ctx, kubectl[flux], "", "delete", "-k", path)).To(Succeed())
		Expect(ways["server-side apply"](ctx, kubectl[argo])).To(Succeed())
		Expect(ways["kubectl delete"](ctx, environment.Admin.Kubectl)).To(Succeed())
	})

	It("takes the right to what it guards, and the opt-in of the namespace", func(ctx context.Context) {
		path := freeze()
		must(environment.Admin.Kubectl.Run(ctx, "", "-n", namespace, "delete", "rolebindings", "--all"))
		Eventually(func(ctx context.Context) error { return in(ctx, kubectl[flux], "", append(fluxApply, "-k", path)...) }).WithContext(ctx).WithTimeout(timeout).
			Should(MatchError(ContainSubstring("; you may not create all deployments.apps")))
		must(environment.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"-"))
		Expect(in(ctx, environment.Admin.Kubectl, "", "apply", "-k", path)).To(MatchError(ContainSubstring("kubectl label namespace " + namespace)))
	})
})
