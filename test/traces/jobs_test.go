package traces_test

import (
	"bytes"
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/test/support/collector"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/tracing/otlp"
	"forrst.dev/lock-operator/webhook"
)

// lockedJob returns a Job under the lock k.
func lockedJob(name, runFor string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{v1alpha1.LockLabel: "true"}, Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "k"},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubelet.Key: namespace + "/k", kubelet.RunFor: runFor}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}}},
			},
		},
	}
}

// about returns the spans with the name and the value of an attribute.
func about(received *collector.Collector, name, attribute, value string) (found []*collector.Span) {
	for _, span := range received.Spans() {
		if span.GetName() == name && span.Text(attribute) == value {
			found = append(found, span)
		}
	}
	return found
}

// partsOf returns the names of the spans that are a part of the span itself.
func partsOf(received *collector.Collector, whole *collector.Span) (names []string) {
	for _, span := range received.Spans() {
		if bytes.Equal(span.GetParentSpanId(), whole.GetSpanId()) {
			names = append(names, span.GetName())
		}
	}
	return names
}

var _ = Describe("What Kubernetes asks for", func() {
	It("is traced: reviews, and Jobs from their wait to their start", func(ctx context.Context) {
		received := collect(ctx, "grpc")
		exporter := otlp.Start(ctx, otlp.Options{Logger: GinkgoLogr})
		admission := environment.StartAdmission(ctx, func(manager ctrl.Manager) {
			locks := fixture.LockAdmission(manager)
			locks.Tracer = exporter.Tracer()
			locks.SetupWithManager(manager)
			(&webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: clock.RealClock{}, Tracer: exporter.Tracer()}).SetupWithManager(manager)
		})
		controllers, err := environment.StartControllerManager("job-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return controllers.Stop() })
		clientset, err := kubernetes.NewForConfig(environment.Admin.Config)
		Expect(err).NotTo(HaveOccurred())
		node, err := kubelet.Start(ctx, clientset)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { node.Stop() })
		program := fixture.StartOperator(ctx, environment.Operator().Kubectl, "--components=controller",
			"--leader-elect=false", "--leader-election-namespace="+testenv.OperatorNamespace)

		By("writing locks directly")
		admin := environment.Admin.Client
		direct := fixture.Manifest(namespace, "direct")
		direct.Spec.Owner = "a-secret-owner"
		Expect(admin.Create(ctx, direct)).To(Succeed())
		Expect(admin.Create(ctx, fixture.Manifest(namespace, "refused", fixture.TTL(time.Nanosecond)))).NotTo(Succeed())

		By("running one Job after the other")
		first, second := lockedJob("first", "forever"), lockedJob("second", "10ms")
		Expect(admin.Create(ctx, first)).To(Succeed())
		var pods corev1.PodList
		Eventually(func() (bool, error) {
			err := admin.List(ctx, &pods, client.InNamespace(namespace))
			return len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodRunning, err
		}).WithTimeout(patience).Should(BeTrue())
		Expect(admin.Create(ctx, second)).To(Succeed())
		Eventually(func() (string, error) {
			var events corev1.EventList
			err := admin.List(ctx, &events, client.InNamespace(namespace))
			reasons := ""
			for _, event := range events.Items {
				reasons += event.InvolvedObject.Name + " " + event.Reason + "\n"
			}
			return reasons, err
		}).WithTimeout(patience).Should(ContainSubstring("second LockWaiting"))
		node.End(pods.Items[0].UID)
		Eventually(func() (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(second), second)
			return second.Status.Succeeded > 0, err
		}).WithTimeout(patience).Should(BeTrue())
		program.Terminate().Wait(patience)
		admission.Stop()
		exporter.Stop(context.WithoutCancel(ctx))

		admitted := about(received, "admit create locks", "lock_operator.object", direct.Name)
		Expect(admitted).To(HaveLen(1))
		Expect(admitted[0].GetParentSpanId()).To(BeEmpty())
		Expect(admitted[0].GetKind()).To(Equal(tracepb.Span_SPAN_KIND_SERVER))
		Expect(admitted[0].Text("lock_operator.outcome")).To(Equal("OK"))
		Expect(admitted[0].Text("lock_operator.namespace")).To(Equal(namespace))
		Expect(string(received.Bytes())).NotTo(ContainSubstring("a-secret-owner"))
		refused := about(received, "admit create locks", "lock_operator.outcome", "Invalid")
		Expect(refused).To(HaveLen(1))
		Expect(refused[0].GetStatus().GetCode()).To(Equal(tracepb.Status_STATUS_CODE_ERROR))
		Expect(about(received, "admit create jobs", "lock_operator.object", "second")).To(HaveLen(1))

		var starts []*collector.Span
		for _, name := range []string{"first", "second"} {
			of := about(received, "start job", "k8s.job.name", name)
			Expect(of).To(HaveLen(1), name)
			Expect(of[0].GetStatus().GetCode()).To(Equal(tracepb.Status_STATUS_CODE_UNSET))
			Expect(of[0].Text("lock_operator.key")).To(Equal("k"))
			Expect(partsOf(received, of[0])).To(ContainElements("wait", "patch jobs", "release"), name)
			starts = append(starts, of[0])
		}
		Expect(starts[1].Text("lock_operator.fencing_token")).NotTo(Equal(starts[0].Text("lock_operator.fencing_token")))
		Expect(starts[1].GetEndTimeUnixNano()-starts[1].GetStartTimeUnixNano()).To(BeNumerically(">", time.Second), "the wait is a part of it")
		spans := tree(received.Spans())
		wait := spans.under(starts[1], "wait")
		release := spans.under(starts[0], "release")
		expectLink(wait, release)
		Expect(partsOf(received, release)).To(ContainElement("update locks"), "a hand-off")
		Expect(partsOf(received, spans.under(starts[1], "release"))).To(ContainElement("delete locks"), "no Job waits")
	})
})

// under returns the one span with the name that is a part of the whole itself.
func (t tree) under(whole *collector.Span, name string) (found *collector.Span) {
	GinkgoHelper()
	for _, span := range t {
		if span.GetName() == name && bytes.Equal(span.GetParentSpanId(), whole.GetSpanId()) {
			Expect(found).To(BeNil(), "two spans %s", name)
			found = span
		}
	}
	Expect(found).NotTo(BeNil(), name)
	return found
}
