package guards_test

import (
	"context"
	"fmt"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// expectTermination deletes a namespace and waits until it is gone.
func expectTermination(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(root.Client.Delete(ctx, namespace)).To(Succeed())
	expectGone(ctx, namespace)
}

func expectGone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		return root.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	}).WithContext(ctx).WithTimeout(systemTimeout).Should(MatchError(ContainSubstring("not found")))
}

// dependent creates a guarded ConfigMap that another object owns, before there is a guard.
func dependent(ctx context.Context, namespace string) (owner, owned *corev1.ConfigMap) {
	GinkgoHelper()
	owner, owned = configMap(namespace, "owner"), configMap(namespace, "owned")
	Expect(root.Client.Create(ctx, owner)).To(Succeed())
	owned.Labels["app"] = "web"
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	Expect(root.Client.Create(ctx, owned)).To(Succeed())
	return owner, owned
}

var _ = Describe("Kubernetes itself", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx, v1alpha1.GuardsEnabled) })

	It("terminates a namespace with guarded objects", func(ctx context.Context) {
		held(ctx, deployer, namespace)
		expectTermination(ctx, namespace)
	})

	It("collects a guarded object whose owner is gone", func(ctx context.Context) {
		owner, owned := dependent(ctx, namespace)
		held(ctx, deployer, namespace)
		Expect(root.Client.Delete(ctx, owner)).To(Succeed())
		expectGone(ctx, owned)
	})

	It("follows a guarded Deployment that its holder changes", func(ctx context.Context) {
		held(ctx, deployer, namespace)
		Expect(patched(aDeployment, "web", types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"main:2"}]}}}}`)(ctx, deployer, namespace)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			var sets appsv1.ReplicaSetList
			g.Expect(root.Client.List(ctx, &sets, client.InNamespace(namespace), client.MatchingLabels{"app": "web"})).To(Succeed())
			g.Expect(sets.Items).To(ContainElement(HaveField("Spec.Template.Spec.Containers", ContainElement(HaveField("Image", "main:2")))))
			// The controller writes this to the guarded Deployment itself.
			web := deployment(namespace, "web")
			g.Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
			g.Expect(web.Annotations).To(HaveKeyWithValue("deployment.kubernetes.io/revision", "2"))
		}).WithContext(ctx).WithTimeout(systemTimeout).Should(Succeed())
	})

	DescribeTable("writes guarded objects as",
		func(ctx context.Context, user string, groups []string) {
			held(ctx, deployer, namespace)
			controller := environment.Identity(user, append(groups, writers)...)
			Expect(paint("web", "blue")(ctx, controller, namespace)).To(Succeed())
			Expect(scaled("web")(ctx, controller, namespace)).To(Succeed())
			Expect(deleted(aConfigMap, "web")(ctx, controller, namespace)).To(Succeed())
		},
		Entry("the garbage collector", "system:serviceaccount:kube-system:generic-garbage-collector", []string{}),
		Entry("the namespace controller", "system:serviceaccount:kube-system:namespace-controller", []string{}),
		Entry("the Deployment controller", "system:serviceaccount:kube-system:deployment-controller", []string{}),
		Entry("the HorizontalPodAutoscaler", "system:serviceaccount:kube-system:horizontal-pod-autoscaler", []string{}),
		Entry("the controller of finished Jobs", "system:serviceaccount:kube-system:ttl-after-finished-controller", []string{}),
		Entry("the cleaner of bootstrap tokens", "system:serviceaccount:kube-system:token-cleaner", []string{}),
		Entry("the signer of cluster-info", "system:serviceaccount:kube-system:bootstrap-signer", []string{}),
		Entry("a controller manager with one account", "system:kube-controller-manager", []string{}),
		Entry("a kubelet", "system:node:worker-1", []string{"system:nodes"}),
		Entry("the operator", testenv.OperatorUser, testenv.OperatorGroups),
	)

	It("writes guarded objects as each account that the webhook configuration lists", func(ctx context.Context) {
		held(ctx, deployer, namespace)
		text, err := os.ReadFile("../../config/guards/webhook.yaml")
		Expect(err).NotTo(HaveOccurred())
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		Expect(yaml.UnmarshalStrict(text, &configuration)).To(Succeed())
		listed := 0
		for _, condition := range configuration.Webhooks[0].MatchConditions {
			if condition.Name != "not-kubernetes" {
				continue
			}
			for _, quoted := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(condition.Expression, -1) {
				listed++
				Expect(paint("web", fmt.Sprint(listed))(ctx, environment.Identity(quoted[1], writers), namespace)).To(Succeed(), quoted[1])
			}
		}
		Expect(listed).To(BeNumerically(">", 20))
	})

	DescribeTable("is not posed as by",
		func(ctx context.Context, user string) {
			held(ctx, deployer, namespace)
			Expect(paint("web", "blue")(ctx, environment.Identity(user, writers), namespace)).To(beGuarded())
		},
		Entry("another account of kube-system", "system:serviceaccount:kube-system:default"),
		Entry("an account of that name elsewhere", "system:serviceaccount:default:generic-garbage-collector"),
		Entry("a user with the name of a kubelet", "system:node:worker-1"),
		Entry("an account of the operator's name elsewhere", "system:serviceaccount:default:lock-operator"),
	)
})

// The webhook of all other specs goes away meanwhile.
var _ = Describe("While the webhook is away", Serial, func() {
	const failedCalling = "failed calling webhook"
	takeAway := func() {
		GinkgoHelper()
		admission.Stop()
		DeferCleanup(admission.Start)
	}

	It("writes fail closed for every user where the namespace has opted in, and nowhere else", func(ctx context.Context) {
		guarded, free := newNamespace(ctx, v1alpha1.GuardsEnabled), newNamespace(ctx, "disabled")
		takeAway()
		for _, who := range []fixture.Identity{deployer, stranger, root} {
			for _, write := range []write{paint("web", "blue"), paint("api", "blue"), scaled("web")} {
				Expect(write(ctx, who, guarded)).To(MatchError(ContainSubstring(failedCalling)))
				Expect(write(ctx, who, free)).To(Succeed())
			}
			Expect(reported(ctx, who, guarded)).To(Succeed())
			Expect(kubectl("", "create", "serviceaccount", "sa", "--dry-run=server")(ctx, who, guarded)).To(Succeed(), "a resource that is not listed")
		}
	})

	It("taking the label off opens the namespace", func(ctx context.Context) {
		namespace := newNamespace(ctx, v1alpha1.GuardsEnabled)
		takeAway()
		Expect(paint("web", "blue")(ctx, stranger, namespace)).To(MatchError(ContainSubstring(failedCalling)))
		Expect(kubectl("", "label", "namespace", namespace, v1alpha1.GuardsLabel+"-")(ctx, root, namespace)).To(Succeed())
		Eventually(paint("web", "blue")).WithContext(ctx).WithTimeout(timeout).WithArguments(stranger, namespace).Should(Succeed())
	})

	It("the operator's own namespace stays open, even with the label, and takes no guards", func(ctx context.Context) {
		label := func(ctx context.Context, change string) {
			GinkgoHelper()
			Expect(kubectl("", "label", "namespace", testenv.OperatorNamespace, v1alpha1.GuardsLabel+change)(ctx, root, "default")).To(Succeed())
		}
		label(ctx, "="+v1alpha1.GuardsEnabled)
		DeferCleanup(label, "-")
		Expect(root.Client.Create(ctx, fixture.Manifest(testenv.OperatorNamespace, "deploy:web", guards(webDeployment)))).To(
			MatchError(ContainSubstring("which their webhook configuration leaves out")))
		takeAway()
		repaired := configMap(testenv.OperatorNamespace, "repaired")
		repaired.Annotations = fence("deploy:web", "100")
		Expect(root.Client.Create(ctx, repaired)).To(Succeed())
		change("blue", fence("deploy:web", "99"))(repaired)
		Expect(root.Client.Update(ctx, repaired)).To(Succeed(), "the fence does not hold there either")
		Expect(root.Client.Delete(ctx, repaired)).To(Succeed())
	})

	It("controllers remove finalizers of what is deleted", func(ctx context.Context) {
		namespace := newNamespace(ctx, v1alpha1.GuardsEnabled)
		kept := configMap(namespace, "kept")
		kept.Finalizers = []string{"example.com/keep"}
		Expect(root.Client.Create(ctx, kept)).To(Succeed())
		Expect(root.Client.Delete(ctx, kept)).To(Succeed())
		takeAway()
		Expect(patched(aConfigMap, "kept", types.MergePatchType, `{"metadata":{"finalizers":null},"data":{"color":"blue"}}`)(ctx, stranger, namespace)).To(
			MatchError(ContainSubstring(failedCalling)))
		Expect(patched(aConfigMap, "kept", types.MergePatchType, `{"metadata":{"finalizers":null}}`)(ctx, stranger, namespace)).To(Succeed())
		expectGone(ctx, kept)
	})

	It("namespaces are terminated and garbage is collected", func(ctx context.Context) {
		namespace, terminated := newNamespace(ctx, v1alpha1.GuardsEnabled), newNamespace(ctx, v1alpha1.GuardsEnabled)
		owner, owned := dependent(ctx, namespace)
		collector := environment.Identity("system:serviceaccount:kube-system:generic-garbage-collector", writers)
		takeAway()
		Expect(collector.Client.Delete(ctx, owner)).To(Succeed())
		expectGone(ctx, owned)
		expectTermination(ctx, terminated)
	})
})
