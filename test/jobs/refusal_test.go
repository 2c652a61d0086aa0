package jobs_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const kueueQueue = "kueue.x-k8s.io/queue-name"

var _ = Describe("What a user asks for a Job under a lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	DescribeTable("is refused on creation, with the path and what to do:", func(ctx context.Context, path, message string, changes ...change) {
		err := admin.Create(ctx, makeJob(namespace, "refused", "key", changes...))
		Expect(err).To(MatchError(And(ContainSubstring(`Job.batch "refused" is invalid`), ContainSubstring(path+": "), ContainSubstring(message))))
	},
		Entry("an empty key", annotation("key"), "must not be empty", annotated(v1alpha1.LockKeyAnnotation, "")),
		Entry("a key with control characters", annotation("key"), "control", annotated(v1alpha1.LockKeyAnnotation, "a\nb")),
		Entry("a key with an invisible character", annotation("key"), "character 2 is U+200B", annotated(v1alpha1.LockKeyAnnotation, "a\u200b")),
		Entry("an unknown scope", annotation("scope"), `supported values: "Global", "Function"`, annotated(v1alpha1.LockScopeAnnotation, "global")),
		Entry("the scope Function without a function", annotation("function"), "names the function", annotated(v1alpha1.LockScopeAnnotation, "Function")),
		Entry("a function of no scope", annotation("function"), "is for the scope Function only", annotated(v1alpha1.LockFunctionAnnotation, "billing")),
		Entry("a ttl without a unit", annotation("ttl"), "such as 90s", annotated(v1alpha1.LockTTLAnnotation, "300")),
		Entry("a negative ttl", annotation("ttl"), "positive", annotated(v1alpha1.LockTTLAnnotation, "-5m")),
		Entry("a ttl that is too long", annotation("ttl"), "must be at most 1h", annotated(v1alpha1.LockTTLAnnotation, "61m")),
		Entry("an unknown policy", annotation("policy"), `supported values: "wait", "skip", "fail"`, annotated(v1alpha1.LockPolicyAnnotation, "queue")),
		Entry("a wait-timeout of nothing", annotation("wait-timeout"), "positive", annotated(v1alpha1.LockWaitTimeoutAnnotation, "0s")),
		Entry("a wait-timeout without a wait", annotation("wait-timeout"), "is for the policy wait only",
			annotated(v1alpha1.LockWaitTimeoutAnnotation, "1m"), annotated(v1alpha1.LockPolicyAnnotation, "skip")),
		Entry("a wait-timeout of years", annotation("wait-timeout"), "leave it out to wait without end", annotated(v1alpha1.LockWaitTimeoutAnnotation, "9000h")),
		Entry("a priority that is no number", annotation("priority"), "must be an integer", annotated(v1alpha1.LockPriorityAnnotation, "high")),
		Entry("a priority of more than 32 bits", annotation("priority"), "must be an integer", annotated(v1alpha1.LockPriorityAnnotation, "2147483648")),
		Entry("a queue of Kueue", "metadata.labels["+kueueQueue+"]", "remove this label or forrst.dev/lock",
			func(job *batchv1.Job) { job.Labels[kueueQueue] = "main" }),
		Entry("another controller", "spec.managedBy", "must be run by the Job controller of Kubernetes",
			func(job *batchv1.Job) { job.Spec.ManagedBy = new("example.com/jobs") }),
		Entry("a selector of its own", "spec.manualSelector", "needs the generated selector", func(job *batchv1.Job) {
			job.Spec.ManualSelector = new(true)
			job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"work": "it"}}
			job.Spec.Template.Labels = map[string]string{"work": "it"}
		}),
	)

	It("is refused with all its errors at once", func(ctx context.Context) {
		err := admin.Create(ctx, makeJob(namespace, "refused", "key", annotated(v1alpha1.LockTTLAnnotation, "x"),
			annotated(v1alpha1.LockPriorityAnnotation, "x"), func(job *batchv1.Job) { job.Labels[kueueQueue] = "main" }))
		for _, path := range []string{annotation("ttl"), annotation("priority"), "metadata.labels[" + kueueQueue + "]"} {
			Expect(err).To(MatchError(ContainSubstring(path)))
		}
	})

	It("may change in priority and wait-timeout only", func(ctx context.Context) {
		create(ctx, makeJob(namespace, "job", "key", annotated("forrst.dev/unheard-of", "ignored")))
		kubectlJob := func(arguments ...string) error {
			_, err := kubectl.Run(ctx, "", append(arguments, "-n", namespace)...)
			return err
		}
		for _, name := range []string{
			v1alpha1.LockKeyAnnotation, v1alpha1.LockScopeAnnotation, v1alpha1.LockFunctionAnnotation,
			v1alpha1.LockTTLAnnotation, v1alpha1.LockPolicyAnnotation,
		} {
			Expect(kubectlJob("annotate", "job", "job", "--overwrite", name+"=1m")).
				To(MatchError(ContainSubstring("metadata.annotations["+name+"]: Invalid value: \"1m\": is immutable")), name)
		}
		Expect(kubectlJob("label", "job", "job", kueueQueue+"=main")).
			To(MatchError(And(ContainSubstring("metadata.labels["+kueueQueue+"]"), ContainSubstring("would start this one without its lock"))))
		Expect(kubectlJob("annotate", "job", "job", v1alpha1.LockPriorityAnnotation+"=high")).To(MatchError(ContainSubstring(annotation("priority"))))
		Expect(kubectlJob("annotate", "job", "job", v1alpha1.LockWaitTimeoutAnnotation+"=soon")).To(MatchError(ContainSubstring(annotation("wait-timeout"))))
		Expect(kubectlJob("annotate", "job", "job", v1alpha1.LockPriorityAnnotation+"=3", v1alpha1.LockWaitTimeoutAnnotation+"=1h", "example.com/note=mine")).To(Succeed())
	})
})

// annotation returns the path of an annotation of locked Jobs.
func annotation(name string) string { return "metadata.annotations[forrst.dev/lock-" + name + "]" }
