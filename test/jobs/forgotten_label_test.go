package jobs_test

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

// The webhook does not see these Jobs: a policy of the API server judges them.
var _ = Describe("A Job that names a lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	// try creates the object without keeping it.
	try := func(ctx context.Context, object client.Object) func() error {
		return func() error {
			copied, _ := object.DeepCopyObject().(client.Object)
			return admin.Create(ctx, copied, client.DryRunAll)
		}
	}
	// refusedAt says what has no effect, and where the label is to be.
	refusedAt := func(place, path string) OmegaMatcher {
		return MatchError(And(
			ContainSubstring(path+"[forrst.dev/lock]: Required value: "+place+" alone has no effect"),
			ContainSubstring("set the label "+path+`[forrst.dev/lock] to "true"`),
		))
	}
	// refusedFor is that for the annotation beside the place of the label.
	refusedFor := func(path string) OmegaMatcher {
		return refusedAt(strings.Replace(path, "labels", "annotations[forrst.dev/lock-key]", 1), path)
	}

	DescribeTable("is refused unless the label says whether it is to run under it",
		func(ctx context.Context, change func(metadata *metav1.ObjectMeta), isRefused bool) {
			job := makeJob(namespace, "job", "key")
			change(&job.ObjectMeta)
			runs := makeCronJob(job)
			if isRefused {
				// The API server knows of a policy a moment after it was created.
				Eventually(try(ctx, job)).Should(refusedFor("metadata.labels"))
				Eventually(try(ctx, runs)).Should(refusedFor("spec.jobTemplate.metadata.labels"))
				return
			}
			Expect(try(ctx, job)()).To(Succeed())
			Expect(try(ctx, runs)()).To(Succeed())
		},
		Entry("no labels", func(metadata *metav1.ObjectMeta) { metadata.Labels = nil }, true),
		Entry("other labels", func(metadata *metav1.ObjectMeta) { metadata.Labels = map[string]string{"app": "billing"} }, true),
		Entry("the label", func(*metav1.ObjectMeta) {}, false),
		Entry("the label, but not wanted", func(metadata *metav1.ObjectMeta) { metadata.Labels[v1alpha1.LockLabel] = "false" }, false),
		Entry("no lock", func(metadata *metav1.ObjectMeta) {
			metadata.Labels, metadata.Annotations = nil, map[string]string{"example.com/lock-key": "other"}
		}, false),
		Entry("no metadata", func(metadata *metav1.ObjectMeta) { metadata.Labels, metadata.Annotations = nil, nil }, false),
	)

	DescribeTable("is refused with the label or an annotation where it has no effect",
		func(ctx context.Context, change func(job *batchv1.Job), place string) {
			job := makeJob(namespace, "job", "key")
			// A Job without labels would get those of its Pods.
			job.Labels, job.Annotations = map[string]string{"app": "billing"}, nil
			change(job)
			Eventually(try(ctx, job)).Should(refusedAt(place, "metadata.labels"))
			Eventually(try(ctx, makeCronJob(job))).Should(refusedAt("spec.jobTemplate."+place, "spec.jobTemplate.metadata.labels"))
			// Where the label is, it does no harm, as labels that a tool gives to everything.
			job.Labels = map[string]string{v1alpha1.LockLabel: "false"}
			Expect(try(ctx, job)()).To(Succeed())
			Expect(try(ctx, makeCronJob(job))()).To(Succeed())
		},
		Entry("the label as an annotation", func(job *batchv1.Job) {
			job.Annotations = map[string]string{v1alpha1.LockLabel: "true"}
		}, "metadata.annotations[forrst.dev/lock]"),
		Entry("the key as a label", func(job *batchv1.Job) {
			job.Labels = map[string]string{v1alpha1.LockKeyAnnotation: "key"}
		}, "metadata.labels[forrst.dev/lock-key]"),
		Entry("a ttl without the label", func(job *batchv1.Job) {
			job.Annotations = map[string]string{v1alpha1.LockTTLAnnotation: "1m"}
		}, "metadata.annotations[forrst.dev/lock-ttl]"),
		Entry("a misspelt key without the label", func(job *batchv1.Job) {
			job.Annotations = map[string]string{"forrst.dev/lock-keys": "key"}
		}, "metadata.annotations[forrst.dev/lock-keys]"),
		Entry("the label on Pods", func(job *batchv1.Job) {
			job.Spec.Template.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		}, "spec.template.metadata.labels[forrst.dev/lock]"),
		Entry("the key on Pods", func(job *batchv1.Job) {
			job.Spec.Template.Annotations[v1alpha1.LockKeyAnnotation] = "key"
		}, "spec.template.metadata.annotations[forrst.dev/lock-key]"),
	)

	DescribeTable("is refused with the label, and with what its annotations are for in another place",
		func(ctx context.Context, change func(job *batchv1.Job), place, name string) {
			job := makeJob(namespace, "job", "key")
			runs := makeCronJob(job)
			Expect(admin.Create(ctx, runs)).To(Succeed())
			change(job)
			refused := func(path string) OmegaMatcher {
				return MatchError(ContainSubstring(path + place + "[" + name + "]: Forbidden: it has no effect there; set " + path + "metadata.annotations[" + name + "]"))
			}
			Eventually(try(ctx, job)).Should(refused(""))
			changed := makeCronJob(job)
			runs.Spec.JobTemplate = changed.Spec.JobTemplate
			Expect(admin.Update(ctx, runs)).To(refused("spec.jobTemplate."))
		},
		Entry("as a label", func(job *batchv1.Job) { job.Labels[v1alpha1.LockTTLAnnotation] = "1m" }, "metadata.labels", v1alpha1.LockTTLAnnotation),
		Entry("as a label of Pods", func(job *batchv1.Job) {
			job.Spec.Template.Labels = map[string]string{v1alpha1.LockPriorityAnnotation: "1"}
		}, "spec.template.metadata.labels", v1alpha1.LockPriorityAnnotation),
		Entry("as an annotation of Pods", func(job *batchv1.Job) {
			job.Spec.Template.Annotations[v1alpha1.LockPolicyAnnotation] = "skip"
		}, "spec.template.metadata.annotations", v1alpha1.LockPolicyAnnotation),
	)

	DescribeTable("is refused with the finalizer of the operator, which would keep it for ever, and without the label",
		func(ctx context.Context, labels map[string]string) {
			job := makeJob(namespace, "copy", "key")
			job.Labels, job.Annotations, job.Finalizers = labels, nil, []string{v1alpha1.LockFinalizer}
			Eventually(try(ctx, job)).Should(MatchError(ContainSubstring("nothing removes the finalizer forrst.dev/lock")))
			job.Finalizers = []string{"example.com/of-another"}
			Expect(try(ctx, job)()).To(Succeed())
		},
		Entry("at all", nil),
		Entry("with the value true", map[string]string{v1alpha1.LockLabel: "false"}),
	)

	It("may have its label on its Pods, too", func(ctx context.Context) {
		job := makeJob(namespace, "job", "key", func(job *batchv1.Job) {
			job.Spec.Template.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		})
		Expect(try(ctx, job)()).To(Succeed())
		Expect(try(ctx, makeCronJob(job))()).To(Succeed())
	})

	It("is refused with the label and an annotation on the CronJob itself", func(ctx context.Context) {
		runs := makeCronJob(makeJob(namespace, "job", "key"))
		runs.Annotations = map[string]string{v1alpha1.LockTTLAnnotation: "1m"}
		Eventually(try(ctx, runs)).Should(MatchError(ContainSubstring(
			"metadata.annotations[forrst.dev/lock-ttl]: Forbidden: it has no effect there; set spec.jobTemplate.metadata.annotations[forrst.dev/lock-ttl]")))
	})

	DescribeTable("is refused with the label or an annotation on the CronJob itself",
		func(ctx context.Context, change func(runs *batchv1.CronJob), place string) {
			runs := makeCronJob(makeJob(namespace, "job", "key", func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil }))
			changed := runs.DeepCopy()
			change(changed)
			Eventually(try(ctx, changed)).Should(refusedAt(place, "spec.jobTemplate.metadata.labels"))
			Expect(admin.Create(ctx, runs)).To(Succeed())
			change(runs)
			Expect(admin.Update(ctx, runs)).To(refusedAt(place, "spec.jobTemplate.metadata.labels"))
		},
		Entry("the label", func(runs *batchv1.CronJob) {
			runs.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		}, "metadata.labels[forrst.dev/lock]"),
		Entry("the key", func(runs *batchv1.CronJob) {
			runs.Annotations = map[string]string{v1alpha1.LockKeyAnnotation: "key"}
		}, "metadata.annotations[forrst.dev/lock-key]"),
	)

	DescribeTable("is refused as a CronJob with the label, if each of its runs would be",
		func(ctx context.Context, message string, change func(job *batchv1.Job)) {
			job := makeJob(namespace, "job", "key")
			runs := makeCronJob(job)
			Expect(admin.Create(ctx, runs)).To(Succeed())
			change(job)
			refused := makeCronJob(job)
			refused.Name = "another"
			Eventually(try(ctx, refused)).Should(MatchError(ContainSubstring("spec.jobTemplate.metadata." + message)))
			runs.Spec.JobTemplate.ObjectMeta = refused.Spec.JobTemplate.ObjectMeta
			Expect(admin.Update(ctx, runs)).To(MatchError(ContainSubstring("spec.jobTemplate.metadata." + message)))
		},
		Entry("another value of the label", `labels[forrst.dev/lock]: Required value: spec.jobTemplate.metadata.labels[forrst.dev/lock] alone has no effect`,
			func(job *batchv1.Job) { job.Labels[v1alpha1.LockLabel], job.Annotations = "yes", nil }),
		Entry("a misspelt key", "annotations[forrst.dev/lock-keys]: Unsupported value: each run would be refused", func(job *batchv1.Job) {
			job.Annotations = map[string]string{"forrst.dev/lock-keys": "key"}
		}),
		Entry("a misspelt annotation beside the key", "annotations[forrst.dev/lock-timeout]: Unsupported value", annotated("forrst.dev/lock-timeout", "1m")),
		Entry("no key", "annotations[forrst.dev/lock-key]: Required value", func(job *batchv1.Job) { job.Annotations = nil }),
	)

	It("may be that of a CronJob with all annotations that there are", func(ctx context.Context) {
		Expect(try(ctx, makeCronJob(makeJob(namespace, "job", "key", func(job *batchv1.Job) {
			for _, name := range []string{
				v1alpha1.LockScopeAnnotation, v1alpha1.LockFunctionAnnotation, v1alpha1.LockTTLAnnotation, v1alpha1.LockPolicyAnnotation,
				v1alpha1.LockWaitTimeoutAnnotation, v1alpha1.LockPriorityAnnotation, v1alpha1.LockPausedAnnotation,
				v1alpha1.LockQueuedTimeAnnotation, v1alpha1.LockWaitingAnnotation, v1alpha1.LockStoppingAnnotation,
			} {
				job.Annotations[name] = "any"
			}
		})))()).To(Succeed())
	})

	It("is refused when it comes to name a lock without the label", func(ctx context.Context) {
		job := makeJob(namespace, "job", "key", func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil })
		Expect(admin.Create(ctx, job)).To(Succeed())
		Eventually(func() error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil { // The Job controller writes it, too.
				return err
			}
			job.Annotations = map[string]string{v1alpha1.LockKeyAnnotation: "key"}
			return admin.Update(ctx, job, client.DryRunAll)
		}).Should(refusedFor("metadata.labels"))
	})

	It("is refused when a webhook that is called later adds the label", func(ctx context.Context) {
		callLater(ctx, namespace, admissionregistrationv1.NeverReinvocationPolicy, `{"op":"add","path":"/metadata/labels","value":{"forrst.dev/lock":"true"}}`)
		job := makeJob(namespace, "job", "key", func(job *batchv1.Job) { job.Labels, job.Annotations = nil, nil })
		Eventually(try(ctx, job)).Should(unprotected)
	})

	It("is refused when a CronJob comes to name a lock, whereas other changes of a CronJob are free", func(ctx context.Context) {
		unlabelled := makeJob(namespace, "job", "key")
		unlabelled.Labels = nil
		runs := makeCronJob(unlabelled)
		Eventually(try(ctx, runs)).Should(refusedFor("spec.jobTemplate.metadata.labels"))

		annotations := runs.Spec.JobTemplate.Annotations
		runs.Spec.JobTemplate.Annotations = nil
		Expect(admin.Create(ctx, runs)).To(Succeed())
		runs.Spec.Schedule = "1 1 1 1 *"
		Expect(admin.Update(ctx, runs)).To(Succeed())
		runs.Spec.JobTemplate.Annotations = annotations
		Expect(admin.Update(ctx, runs)).To(refusedFor("spec.jobTemplate.metadata.labels"))
		runs.Spec.JobTemplate.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		Expect(admin.Update(ctx, runs)).To(Succeed())
	})

	It("is refused when the CronJob was stored before the policy, which itself may be suspended", func(ctx context.Context) {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: testenv.Installed("lock-operator-cronjobs")}, binding)).To(Succeed())
		Expect(admin.Delete(ctx, binding)).To(Succeed())
		binding.ResourceVersion, binding.UID = "", ""
		installed := false
		install := func(ctx context.Context) {
			if !installed {
				Expect(admin.Create(ctx, binding)).To(Succeed())
				installed = true
			}
		}
		DeferCleanup(install)
		unlabelled := makeJob(namespace, "job", "key")
		unlabelled.Labels = nil
		runs := makeCronJob(unlabelled)
		Eventually(try(ctx, runs)).Should(Succeed())
		Expect(admin.Create(ctx, runs)).To(Succeed())
		install(ctx)
		other := runs.DeepCopy()
		other.ResourceVersion, other.UID, other.Name = "", "", "other"
		Eventually(try(ctx, other)).Should(refusedFor("spec.jobTemplate.metadata.labels"))

		// As kubectl and Helm do, with annotations and labels of theirs.
		runs.Spec.Schedule = "1 1 1 1 *"
		runs.Labels, runs.Annotations = map[string]string{"helm.sh/chart": "billing-2"}, map[string]string{"example.com/applied": "{}"}
		runs.Spec.JobTemplate.Labels = map[string]string{"app": "billing"}
		Expect(admin.Update(ctx, runs)).To(Succeed())
		runs.Spec.JobTemplate.Annotations[v1alpha1.LockTTLAnnotation] = "1m"
		Expect(admin.Update(ctx, runs)).To(refusedAt("spec.jobTemplate.metadata.annotations[forrst.dev/lock-ttl]", "spec.jobTemplate.metadata.labels"))
	})

	It("is refused with one sentence that kubectl shows", func(ctx context.Context) {
		_, err := kubectl.Run(ctx, "", "create", "job", "plain", "-n", namespace, "--image=work")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			_, err := kubectl.Run(ctx, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"forgotten","annotations":{"forrst.dev/lock-key":"key"}},
				"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"work","image":"work"}]}}}}`,
				"create", "-n", namespace, "--dry-run=server", "-f", "-")
			return err
		}).Should(refusedFor("metadata.labels"))
	})
})

// makeCronJob returns a CronJob that never runs by itself, with Jobs as given.
func makeCronJob(job *batchv1.Job) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *",
			Suspend:  new(true),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(job.Labels), Annotations: maps.Clone(job.Annotations)},
				Spec:       job.Spec,
			},
		},
	}
}
