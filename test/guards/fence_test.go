package guards_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// fence is the value of the two annotations, where "" stands for none.
func fence(key, token string) map[string]string {
	annotations := map[string]string{}
	if key != "" {
		annotations[v1alpha1.FencedByAnnotation] = key
	}
	if token != "" {
		annotations[v1alpha1.FencingTokenAnnotation] = token
	}
	return annotations
}

var _ = Describe("The fence", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx, v1alpha1.GuardsEnabled) })

	// fenced is a ConfigMap whose last change presented the token 100, unless told otherwise.
	fenced := func(ctx context.Context, token string) *corev1.ConfigMap {
		GinkgoHelper()
		object := configMap(namespace, "fenced")
		object.Annotations = fence("deploy:web", token)
		Expect(root.Client.Create(ctx, object)).To(Succeed())
		return object
	}
	const lower = "a token that is lower is that of an earlier holder"

	DescribeTable("of an object with the token 100",
		func(ctx context.Context, change func(*corev1.ConfigMap), refusal string) {
			object := fenced(ctx, "100")
			change(object)
			err := stranger.Client.Update(ctx, object)
			if refusal == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(refusal)))
			Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
		},
		Entry("refuses data with a lower token", change("blue", fence("deploy:web", "99")), lower),
		Entry("compares numbers and not texts", change("blue", fence("deploy:web", "20")), lower),
		Entry("takes data with that token", change("blue", fence("deploy:web", "100")), ""),
		Entry("takes data with a higher token", change("blue", fence("deploy:web", "1000")), ""),
		Entry("refuses data without a token", change("blue", fence("deploy:web", "")), "but has none"),
		Entry("refuses data without annotations", change("blue", nil), "but has none"),
		Entry("refuses a token with leading zeros", change("blue", fence("deploy:web", "0100")), "without leading zeros"),
		Entry("refuses a token that is no number", change("blue", fence("deploy:web", "1e9")), "without leading zeros"),
		Entry("refuses a negative token", change("blue", fence("deploy:web", "-100")), "without leading zeros"),
		Entry("refuses a token that overflows", change("blue", fence("deploy:web", "99999999999999999999")), "of at most 18 digits"),
		Entry("refuses the removal of the fence with a lower token", change("red", fence("", "99")), lower),
		Entry("refuses the removal of the fence without a token", change("red", nil), lower),
		Entry("refuses data in the write that removes the fence with a lower token", change("blue", fence("", "99")), lower),
		Entry("takes the removal of the fence with that token", change("red", fence("", "100")), ""),
		Entry("refuses another key with a lower token", change("red", fence("deploy:api", "99")), lower),
		Entry("refuses a lower token alone", change("red", fence("deploy:web", "99")), lower),
		Entry("refuses the removal of the token alone", change("red", fence("deploy:web", "")), lower),
		Entry("takes labels", func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }, ""),
		Entry("takes other annotations", func(c *corev1.ConfigMap) { c.Annotations["a"] = "b" }, ""),
		Entry("takes finalizers", func(c *corev1.ConfigMap) { c.Finalizers = []string{"example.com/keep"} }, ""),
		Entry("refuses new fields besides data", func(c *corev1.ConfigMap) {
			c.BinaryData, c.Annotations = map[string][]byte{"a": {1}}, fence("deploy:web", "99")
		}, lower),
		Entry("takes an object with many fields", func(c *corev1.ConfigMap) {
			c.Annotations = fence("deploy:web", "100")
			for i := range 2000 {
				c.Data[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", 400)
			}
		}, ""),
		Entry("refuses the removal of a field", func(c *corev1.ConfigMap) { c.Data, c.Annotations = nil, fence("deploy:web", "99") }, lower),
	)

	It("takes any token where none is stored, and none but a token", func(ctx context.Context) {
		object := fenced(ctx, "")
		object.Data["color"] = "blue"
		Expect(stranger.Client.Update(ctx, object.DeepCopy())).To(MatchError(ContainSubstring("but has none")))
		Expect(kubectl("", "annotate", "configmap", object.Name, v1alpha1.FencedByAnnotation+"-")(ctx, stranger, namespace)).To(MatchError(ContainSubstring("but has none")))
		object.Annotations = fence("deploy:web", "1")
		Expect(stranger.Client.Update(ctx, object)).To(Succeed())
	})

	It("is about the spec of what has one, and neither its status nor its annotations", func(ctx context.Context) {
		web := deployment(namespace, "web")
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		annotate := func(token string, spec string) error {
			return stranger.Client.Patch(ctx, web.DeepCopy(), client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"forrst.dev/fenced-by":"deploy:web","forrst.dev/fencing-token":%q}},"spec":%s}`, token, spec)))
		}
		Expect(annotate("100", `{"minReadySeconds":1}`)).To(Succeed())
		Expect(annotate("99", `{"minReadySeconds":2}`)).To(MatchError(ContainSubstring(lower)))
		Expect(annotate("100", `{"minReadySeconds":2}`)).To(Succeed())
		Expect(reported(ctx, stranger, namespace)).To(Succeed())
	})

	It("takes no lower token and no removal of it by a write of the status", func(ctx context.Context) {
		web := deployment(namespace, "web")
		Expect(kubectl("", "annotate", "deployment", web.Name, v1alpha1.FencedByAnnotation+"=deploy:web", v1alpha1.FencingTokenAnnotation+"=100")(ctx, root, namespace)).To(Succeed())
		for token, refusal := range map[string]string{`"99"`: lower, "null": "but has none"} {
			change := fmt.Appendf(nil, `{"metadata":{"annotations":{"forrst.dev/fenced-by":null,"forrst.dev/fencing-token":%s}},"status":{"collisionCount":2}}`, token)
			Expect(stranger.Client.Status().Patch(ctx, web.DeepCopy(), client.RawPatch(types.MergePatchType, change))).To(MatchError(ContainSubstring(refusal)))
		}
		Expect(reported(ctx, stranger, namespace)).To(Succeed())
	})

	It("takes no change of its annotations by a write of the status, and so no token that keeps the holder out", func(ctx context.Context) {
		web := deployment(namespace, "web")
		const refusal = "a write of the status may not change the annotations"
		status := func(annotations string) error {
			return statusPatched(`{"metadata":{"annotations":{`+annotations+`}},"status":{"collisionCount":2}}`)(ctx, stranger, namespace)
		}
		Expect(status(`"forrst.dev/fenced-by":"deploy:web","forrst.dev/fencing-token":"999999999999999999"`)).To(MatchError(ContainSubstring(refusal)), "no fence yet")
		Expect(kubectl("", "annotate", "deployment", web.Name, v1alpha1.FencedByAnnotation+"=deploy:web", v1alpha1.FencingTokenAnnotation+"=100")(ctx, root, namespace)).To(Succeed())
		for _, annotations := range []string{`"forrst.dev/fencing-token":"999999999999999999"`, `"forrst.dev/fenced-by":null`, `"forrst.dev/fenced-by":"deploy:api"`} {
			Expect(status(annotations)).To(MatchError(ContainSubstring(refusal)), annotations)
		}
		Expect(status(`"a":"b"`)).To(Succeed())
		Expect(statusPatched(`{"status":{"collisionCount":3}}`)(ctx, stranger, namespace)).To(Succeed())
	})

	It("fences an autoscaler in each version of its API", func(ctx context.Context) {
		autoscaler := func(annotations, maximum string) string {
			return `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"web","annotations":{"forrst.dev/fenced-by":"deploy:web"` +
				annotations + `}},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"targetCPUUtilizationPercentage":50,"maxReplicas":` + maximum + `}}`
		}
		replace := func(annotations, maximum string) error {
			return kubectl(autoscaler(annotations, maximum), "replace", "-f", "-")(ctx, stranger, namespace)
		}
		Expect(kubectl(autoscaler("", "5"), "create", "-f", "-")(ctx, root, namespace)).To(Succeed())
		// In this version an annotation holds a part of the spec.
		const metrics = `,"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"load\",\"targetAverageValue\":\"1\"}}]"`
		Expect(replace(metrics, "5")).To(MatchError(ContainSubstring("but has none")))
		Expect(replace("", "6")).To(MatchError(ContainSubstring("but has none")))
		Expect(replace(`,"forrst.dev/fencing-token":"100"`+metrics, "6")).To(Succeed())
		Expect(replace(`,"forrst.dev/fencing-token":"99"`, "6")).To(MatchError(ContainSubstring(lower)))
	})

	It("does not hold up the operator, which starts Jobs", func(ctx context.Context) {
		fenced(ctx, "100")
		starter := environment.Identity(operator.Name, writers)
		Expect(patched(aConfigMap, "fenced", types.MergePatchType, `{"metadata":{"annotations":null},"data":{"color":"blue"}}`)(ctx, starter, namespace)).To(Succeed())
	})

	It("refuses a malformed token at the creation", func(ctx context.Context) {
		object := configMap(namespace, "fenced")
		object.Annotations = fence("deploy:web", "007")
		Expect(stranger.Client.Create(ctx, object)).To(MatchError(ContainSubstring("without leading zeros")))
	})

	It("can be taken down in two steps, and leaves objects without the annotation alone", func(ctx context.Context) {
		object := fenced(ctx, "100")
		annotate := func(change string) error {
			return kubectl("", "annotate", "configmap", object.Name, change)(ctx, stranger, namespace)
		}
		Expect(annotate(v1alpha1.FencedByAnnotation + "-")).To(Succeed())
		Expect(annotate(v1alpha1.FencingTokenAnnotation + "-")).To(Succeed())
		Expect(paint("fenced", "blue")(ctx, stranger, namespace)).To(Succeed())
		Expect(annotate(v1alpha1.FencingTokenAnnotation+"=soon")).To(Succeed(), "without a fence the annotation means nothing")
	})

	It("does nothing in a namespace that has not opted in", func(ctx context.Context) {
		other := newNamespace(ctx, "disabled")
		object := configMap(other, "fenced")
		object.Annotations = fence("deploy:web", "100")
		Expect(root.Client.Create(ctx, object)).To(Succeed())
		object.Data["color"], object.Annotations = "blue", fence("deploy:web", "99")
		Expect(stranger.Client.Update(ctx, object)).To(Succeed())
	})
})

// change sets the data and replaces the annotations.
func change(color string, annotations map[string]string) func(*corev1.ConfigMap) {
	return func(object *corev1.ConfigMap) {
		object.Data = map[string]string{"color": color}
		object.Annotations = annotations
	}
}
