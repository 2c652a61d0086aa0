package jobs_test

import (
	"context"
	"maps"

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
	// refusedFor says where the label is to be.
	refusedFor := func(path string) OmegaMatcher {
		return MatchError(And(
			ContainSubstring(path+"[forrst.dev/lock]: Required value: the annotation forrst.dev/lock-key alone has no effect"),
			ContainSubstring(`set the label to "true", or to "false"`),
		))
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

		runs.Spec.Schedule = "1 1 1 1 *"
		Expect(admin.Update(ctx, runs)).To(Succeed())
		runs.Spec.JobTemplate.Labels = map[string]string{"app": "billing"}
		Expect(admin.Update(ctx, runs)).To(refusedFor("spec.jobTemplate.metadata.labels"))
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
