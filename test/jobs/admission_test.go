package jobs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("The admission of Jobs", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	DescribeTable("refuses on creation, with the path", func(ctx context.Context, change func(*batchv1.Job), message string) {
		job := makeJob(namespace, "refused", "key", change)
		Expect(admin.Create(ctx, job)).To(MatchError(ContainSubstring(message)))
	},
		Entry("a malformed ttl", annotated(v1alpha1.LockTTLAnnotation, "5 minutes"), "metadata.annotations[forrst.dev/lock-ttl]: Invalid value"),
		Entry("no key", func(job *batchv1.Job) { delete(job.Annotations, v1alpha1.LockKeyAnnotation) }, "metadata.annotations[forrst.dev/lock-key]: Required value"),
		Entry("a Job of Kueue", func(job *batchv1.Job) { job.Labels["kueue.x-k8s.io/queue-name"] = "main" }, "Kueue suspends and starts the Jobs of its queues itself"),
		Entry("another value of the label", func(job *batchv1.Job) { job.Labels[v1alpha1.LockLabel] = "yes" }, `metadata.labels[forrst.dev/lock]: Unsupported value: "yes"`),
	)

	It("leaves Jobs without the label alone, and takes no label away", func(ctx context.Context) {
		job := makeJob(namespace, "ordinary", "none", podAnnotated(kubelet.Key, ""))
		job.Labels, job.Annotations = nil, nil
		create(ctx, job)
		Expect(read(ctx, job).Finalizers).To(BeEmpty())
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		_, err := kubectl.Run(ctx, "", "label", "job", "ordinary", "-n", namespace, "forrst.dev/lock=true")
		Expect(err).To(MatchError(ContainSubstring("is immutable")))

		locked := create(ctx, makeJob(namespace, "locked", "key"))
		_, err = kubectl.Run(ctx, "", "label", "job", "locked", "-n", namespace, "forrst.dev/lock-")
		Expect(err).To(MatchError(ContainSubstring("is immutable")))
		said, err := kubectl.Run(ctx, "", "patch", "job", "locked", "-n", namespace, "--type=merge", "-p", `{"spec":{"suspend":false}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(said).To(ContainSubstring("Warning: the Job stays suspended until it holds its lock"))
		Expect(read(ctx, locked).Spec.Suspend).To(HaveValue(BeTrue()))
	})
})

var _ = Describe("The samples", func() {
	It("are admitted, and their Jobs run", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		startOperator(ctx)
		root, err := testenv.ModuleRoot()
		Expect(err).NotTo(HaveOccurred())
		files, err := filepath.Glob(filepath.Join(root, "config", "samples", "jobs", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(4))
		_, err = kubectl.Run(ctx, "", "apply", "-n", namespace, "-f", filepath.Dir(files[0]))
		Expect(err).NotTo(HaveOccurred())
		want := 0
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			want += strings.Count(string(content), "kind: Job\n")
		}
		Expect(want).To(Equal(3))
		var created batchv1.JobList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &created, client.InNamespace(namespace))).To(Succeed())
			complete := 0
			for i := range created.Items {
				if conditionOf(&created.Items[i], batchv1.JobComplete) != nil {
					complete++
				}
			}
			g.Expect(complete).To(BeNumerically(">=", want))
		}).Should(Succeed())
	})
})
