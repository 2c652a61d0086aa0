package guards_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/test/support/fixture"
)

// guardedWrites are those of objects that the lock of [held] guards.
var guardedWrites = map[string]write{
	"an update":                           replaced("web", func(c *corev1.ConfigMap) { c.Data["color"] = "blue" }),
	"a merge patch":                       paint("web", "blue"),
	"a JSON patch":                        patched(aConfigMap, "web", types.JSONPatchType, `[{"op":"replace","path":"/data/color","value":"blue"}]`),
	"a strategic patch, by name":          patched(aDeployment, "web", types.StrategicMergePatchType, `{"spec":{"minReadySeconds":1}}`),
	"a server-side apply":                 patched(aConfigMap, "web", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"size":"m"}}`, client.FieldOwner("test"), client.ForceOwnership),
	"a label that takes it out":           patched(aConfigMap, "web", types.MergePatchType, `{"metadata":{"labels":{"app":null}}}`),
	"a label that puts another object in": patched(aConfigMap, "api", types.MergePatchType, `{"metadata":{"labels":{"app":"web"}}}`),
	"an annotation":                       patched(aDeployment, "web", types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`),
	"a finalizer":                         patched(aConfigMap, "web", types.MergePatchType, `{"metadata":{"finalizers":["example.com/keep"]}}`),
	"a create by labels":                  created(func(c *corev1.ConfigMap) { c.Labels["app"] = "web" }),
	"a create with a generated name":      created(func(c *corev1.ConfigMap) { c.Name, c.GenerateName, c.Labels["app"] = "", "fresh-", "web" }),
	"a delete by name":                    deleted(aDeployment, "web"),
	"a delete by labels":                  deleted(aConfigMap, "web"),
	"a delete in the foreground":          deleted(aConfigMap, "web", client.PropagationPolicy(metav1.DeletePropagationForeground)),
	"a delete of a collection":            deletedAll,
	"its scale":                           scaled("web"),
	"an annotation by its status":         statusPatched(`{"metadata":{"annotations":{"a":"b"}},"status":{"collisionCount":1}}`),
	"a finalizer by its status":           statusPatched(`{"metadata":{"finalizers":["example.com/keep"]}}`),
	"an owner by its status":              statusPatched(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"00000000-0000-4000-8000-000000000000"}]}}`),
	"kubectl apply":                       kubectl(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","labels":{"app":"web"}},"data":{"color":"blue"}}`, "apply", "-f", "-"),
	"kubectl scale":                       kubectl("", "scale", "deployment", "web", "--replicas=0"),
	"kubectl rollout restart":             kubectl("", "rollout", "restart", "deployment", "web"),
	"kubectl delete":                      kubectl("", "delete", "configmap", "web"),
}

// freeWrites are of objects that it does not guard, or of their status.
var freeWrites = map[string]write{
	"an update of another object":      replaced("api", func(c *corev1.ConfigMap) { c.Data["color"] = "blue" }),
	"a create of other labels":         created(func(*corev1.ConfigMap) {}),
	"a delete of another object":       deleted(aDeployment, "api"),
	"the scale of another object":      scaled("api"),
	"its status":                       reported,
	"another resource of its name":     kubectl("", "create", "service", "clusterip", "web", "--tcp=80"),
	"a resource that is not listed":    kubectl("", "create", "serviceaccount", "web"),
	"a dry run of an update of others": patched(aConfigMap, "api", types.MergePatchType, `{"data":{"color":"blue"}}`, client.DryRunAll),
}

var _ = Describe("While a lock guards objects", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx, v1alpha1.GuardsEnabled) })

	for name, write := range guardedWrites {
		Describe(name, func() {
			It("is refused to other users, administrators included, and allowed to the holder, with a record", func(ctx context.Context) {
				lock := held(ctx, deployer, namespace)
				for _, who := range []fixture.Identity{stranger, root, breaker} {
					Expect(write(ctx, who, namespace)).To(MatchError(ContainSubstring(
						`is guarded by the lock "deploy--web", key lock:deploy:web, which "`+deployer.Name+`" has held since `)), who.Name)
				}
				Expect(recorded(namespace, audit.WriteAdmitted)).To(BeEmpty())
				Expect(write(ctx, deployer, namespace)).To(Succeed())
				Expect(recorded(namespace, audit.WriteAdmitted)).To(ContainElement(And(
					HaveField("Actor", deployer.Name), HaveField("FencingToken", tokenOf(lock)),
				)))
			})
			It("is free without the lock", func(ctx context.Context) {
				Expect(write(ctx, stranger, namespace)).To(Succeed())
				Expect(recorded(namespace, audit.WriteAdmitted)).To(BeEmpty())
			})
		})
	}

	for name, write := range freeWrites {
		It("another user is allowed "+name, func(ctx context.Context) {
			held(ctx, deployer, namespace)
			before := len(recorded(namespace, audit.WriteRefused))
			Expect(write(ctx, stranger, namespace)).To(Succeed())
			Expect(recorded(namespace, audit.WriteRefused)).To(HaveLen(before))
		})
	}

	It("refuses the scale by a selector, of the objects that it matches", func(ctx context.Context) {
		held(ctx, deployer, namespace, guards(webMaps, v1alpha1.Guard{
			Group: "apps", Resource: "deployments", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}))
		Expect(scaled("web")(ctx, stranger, namespace)).To(beGuarded())
		Expect(scaled("api")(ctx, stranger, namespace)).To(Succeed())
		Expect(scaled("web")(ctx, deployer, namespace)).To(Succeed())
	})

	It("refuses a label by a write of the status, and lets the status itself pass", func(ctx context.Context) {
		// Unlike that of a Deployment, its status takes labels.
		for _, app := range []string{"web", "api"} {
			Expect(root.Client.Create(ctx, statefulSet(namespace, app))).To(Succeed())
		}
		held(ctx, deployer, namespace, guards(webMaps, v1alpha1.Guard{
			Group: "apps", Resource: "statefulsets", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}))
		status := func(who fixture.Identity, app, change string) error {
			return who.Client.Status().Patch(ctx, statefulSet(namespace, app), client.RawPatch(types.MergePatchType, []byte(change)))
		}
		takeOut, putIn := `{"metadata":{"labels":{"app":null}},"status":{"collisionCount":2}}`, `{"metadata":{"labels":{"app":"web"}}}`
		Expect(status(stranger, "web", takeOut)).To(beGuarded())
		Expect(status(stranger, "api", putIn)).To(beGuarded())
		Expect(status(stranger, "web", `{"status":{"collisionCount":1}}`)).To(Succeed())
		Expect(status(deployer, "web", takeOut)).To(Succeed())
		web := statefulSet(namespace, "web")
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		Expect(web.Labels).To(BeEmpty(), "the status of a StatefulSet no longer takes labels: this spec needs another resource")
	})

	It("refuses an autoscaler of another name than the Deployment, in each version, by a selector", func(ctx context.Context) {
		held(ctx, deployer, namespace, guards(webMaps, v1alpha1.Guard{Group: "autoscaling", Resource: "horizontalpodautoscalers", Selector: &metav1.LabelSelector{}}))
		for _, version := range []string{"v1", "v2"} {
			autoscaler := func(name string) string {
				return fmt.Sprintf(`{"apiVersion":"autoscaling/%s","kind":"HorizontalPodAutoscaler","metadata":{"name":%q},`+
					`"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"minReplicas":5,"maxReplicas":5}}`, version, name)
			}
			Expect(kubectl(autoscaler("stray-"+version), "create", "-f", "-")(ctx, stranger, namespace)).To(MatchError(ContainSubstring("is guarded by the lock")))
			Expect(kubectl(autoscaler("ours-"+version), "create", "-f", "-")(ctx, deployer, namespace)).To(Succeed())
			resource := "horizontalpodautoscalers." + version + ".autoscaling"
			Expect(kubectl("", "patch", resource, "ours-"+version, "--type=merge", `--patch={"spec":{"maxReplicas":9}}`)(ctx, stranger, namespace)).To(
				MatchError(ContainSubstring("is guarded by the lock")))
			Expect(kubectl("", "patch", resource, "ours-"+version, "--type=merge", "--subresource=status", `--patch={"status":{"currentReplicas":1,"desiredReplicas":1}}`)(ctx, stranger, namespace)).To(Succeed())
		}
		// Its message does not say why.
		Expect(kubectl("", "autoscale", "deployment", "web", "--min=5", "--max=5")(ctx, stranger, namespace)).To(MatchError(ContainSubstring("failed to create autoscaling/v2 HPA")))
		Expect(kubectl("", "get", "hpa", "web")(ctx, root, namespace)).To(MatchError(ContainSubstring("not found")))
	})

	It("lets any user remove the finalizers of an object that its holder has deleted, and change nothing else", func(ctx context.Context) {
		Expect(patched(aConfigMap, "web", types.MergePatchType, `{"metadata":{"finalizers":["example.com/keep","example.com/more"]}}`)(ctx, root, namespace)).To(Succeed())
		held(ctx, deployer, namespace)
		finalizers := func(list, more string) write {
			return patched(aConfigMap, "web", types.MergePatchType, fmt.Sprintf(`{"metadata":{"finalizers":%s}%s}`, list, more))
		}
		one := finalizers(`["example.com/more"]`, "")
		Expect(one(ctx, stranger, namespace)).To(beGuarded(), "it is not deleted yet")
		Expect(deleted(aConfigMap, "web")(ctx, deployer, namespace)).To(Succeed())
		for _, more := range []string{`,"data":{"color":"blue"}`, `,"data":null`, `,"binaryData":{"a":"AAAA"}`, `,"immutable":true`} {
			Expect(finalizers("null", more)(ctx, stranger, namespace)).To(beGuarded(), more)
		}
		for _, metadata := range []string{`"labels":{"app":null}`, `"labels":null`, `"annotations":{"a":"b"}`, `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"1"}]`} {
			Expect(patched(aConfigMap, "web", types.MergePatchType, `{"metadata":{"finalizers":null,`+metadata+`}}`)(ctx, stranger, namespace)).To(beGuarded(), metadata)
		}
		before := len(recorded(namespace, audit.WriteRefused))
		Expect(one(ctx, stranger, namespace)).To(Succeed())
		Expect(finalizers("null", "")(ctx, stranger, namespace)).To(Succeed())
		Expect(recorded(namespace, audit.WriteRefused)).To(HaveLen(before))
		gone := configMap(namespace, "web")
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(gone), gone)).To(MatchError(ContainSubstring("not found")))
	})

	It("keeps the finalizer by which the garbage collector waits for dependents", func(ctx context.Context) {
		owner := configMap(namespace, "web")
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
		dependent := configMap(namespace, "dependent")
		dependent.Finalizers = []string{"example.com/keep"}
		dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}}
		Expect(root.Client.Create(ctx, dependent)).To(Succeed())
		held(ctx, deployer, namespace)
		Expect(deployer.Client.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(patched(aConfigMap, "web", types.MergePatchType, `{"metadata":{"finalizers":null}}`)(ctx, stranger, namespace)).To(beGuarded())
		Expect(patched(aConfigMap, "dependent", types.MergePatchType, `{"metadata":{"finalizers":null}}`)(ctx, root, namespace)).To(Succeed())
	})

	It("refuses everything of a resource by an empty selector", func(ctx context.Context) {
		held(ctx, deployer, namespace, guards(v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{}}))
		for _, write := range []write{paint("api", "blue"), deleted(aConfigMap, "api"), created(func(*corev1.ConfigMap) {}),
			created(func(c *corev1.ConfigMap) { c.Labels = nil })} {
			Expect(write(ctx, stranger, namespace)).To(beGuarded())
		}
		Expect(scaled("web")(ctx, stranger, namespace)).To(Succeed())
	})

	It("guards the creation of an object that does not exist yet", func(ctx context.Context) {
		held(ctx, deployer, namespace, guards(webMaps, v1alpha1.Guard{Resource: "configmaps", Name: "fresh"}))
		Expect(created(func(*corev1.ConfigMap) {})(ctx, stranger, namespace)).To(beGuarded())
		Expect(created(func(*corev1.ConfigMap) {})(ctx, deployer, namespace)).To(Succeed())
	})

	It("records a refusal, and nothing of a dry run", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		dry := patched(aConfigMap, "web", types.MergePatchType, `{"data":{"color":"blue"}}`, client.DryRunAll)
		Expect(dry(ctx, stranger, namespace)).To(beGuarded())
		Expect(dry(ctx, deployer, namespace)).To(Succeed())
		Expect(recorded(namespace, audit.WriteRefused)).To(BeEmpty())
		Expect(recorded(namespace, audit.WriteAdmitted)).To(BeEmpty())
		Expect(scaled("web")(ctx, stranger, namespace)).To(beGuarded())
		Expect(recorded(namespace, audit.WriteRefused)).To(ConsistOf(And(
			HaveField("Reason", audit.Guarded), HaveField("Actor", "stranger"), HaveField("Holder", deployer.Name), HaveField("Operation", "update"),
			HaveField("Lock", lock.Name), HaveField("FencingToken", tokenOf(lock)),
			HaveField("Object", &audit.Object{Group: "apps", Resource: "deployments", Subresource: "scale", Name: "web"}),
		)))
	})

	It("does nothing to a namespace that has not opted in", func(ctx context.Context) {
		other := newNamespace(ctx, "disabled")
		lock := fixture.Manifest(other, "deploy:web", guards(webDeployment))
		Expect(deployer.Client.Create(ctx, lock)).To(MatchError(And(ContainSubstring("spec.guards"),
			ContainSubstring("kubectl label namespace "+other+" forrst.dev/guards=enabled"))))
	})

	It("does nothing to a namespace any more whose label was removed", func(ctx context.Context) {
		for name, write := range guardedWrites {
			opened := newNamespace(ctx, v1alpha1.GuardsEnabled)
			lock := held(ctx, deployer, opened)
			Expect(kubectl("", "label", "namespace", opened, v1alpha1.GuardsLabel+"-")(ctx, root, opened)).To(Succeed())
			// The API server takes a moment to see its label.
			Eventually(paint("web", "red")).WithContext(ctx).WithTimeout(timeout).WithArguments(stranger, opened).Should(Succeed())
			Expect(write(ctx, stranger, opened)).To(Succeed(), name)
			Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed(), "the lock is still held")
		}
	})
})

// recorded returns the records of the event in the namespace.
func recorded(namespace string, event audit.Event) []audit.Record {
	var found []audit.Record
	for _, record := range records.All() {
		if record.Namespace == namespace && record.Event == event {
			found = append(found, record)
		}
	}
	return found
}

func tokenOf(lock *v1alpha1.Lock) int64 {
	GinkgoHelper()
	token, err := lock.FencingToken()
	Expect(err).NotTo(HaveOccurred())
	return token
}
