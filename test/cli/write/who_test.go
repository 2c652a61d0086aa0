package write_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

var _ = Describe("Who shows when the holder last wrote to its log", func() {
	const key = "billing:report"
	var (
		namespace string
		clientset kubernetes.Interface
	)
	BeforeEach(func(ctx context.Context) {
		namespace = cluster.Namespace(ctx, "who-")
		clientset = must(kubernetes.NewForConfig(cluster.Admin.Config))
		DeferCleanup(func(ctx context.Context) {
			Expect(clientset.CoreV1().Nodes().Delete(ctx, namespace, metav1.DeleteOptions{})).To(Succeed())
		})
	})

	// serveLogs starts the kubelet of the node that has the name of the namespace.
	serveLogs := func(ctx context.Context) *kubelet.Logs {
		GinkgoHelper()
		logs := must(kubelet.ServeLogs(ctx, clientset, namespace))
		DeferCleanup(logs.Stop)
		return logs
	}
	run := func(ctx context.Context, pod *corev1.Pod, containers ...string) *corev1.Pod {
		GinkgoHelper()
		pod.Namespace, pod.Spec.NodeName = namespace, namespace
		for _, name := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "main"})
		}
		Expect(cluster.Admin.Client.Create(ctx, pod)).To(Succeed())
		before := pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		Expect(cluster.Admin.Client.Status().Patch(ctx, pod, client.MergeFrom(before))).To(Succeed())
		return pod
	}
	hold := func(ctx context.Context, apiVersion, kind string, object client.Object) {
		GinkgoHelper()
		Expect(cluster.Admin.Client.Create(ctx, &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
			Spec: v1alpha1.LockSpec{Key: key, Owner: "a-secret", TTL: &v1alpha1.Duration{Duration: 10 * time.Minute},
				HolderRef: &v1alpha1.HolderReference{APIVersion: apiVersion, Kind: kind, Name: object.GetName(), UID: object.GetUID()}},
		})).To(Succeed())
	}
	who := func(ctx context.Context) outcome {
		GinkgoHelper()
		return lockAs(ctx, ann, home(), namespace, "", "who", key)
	}

	It("from its only container", func(ctx context.Context) {
		logs := serveLogs(ctx)
		hold(ctx, "v1", "Pod", run(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, "main"))
		Expect(who(ctx)).To(And(succeed("Pod worker: Running on node "+namespace), HaveField("Out", Not(ContainSubstring("last log line")))), "there is no log yet")
		logs.Write(namespace, "worker", "main", time.Now().Add(-3*time.Hour), "begin")
		logs.Write(namespace, "worker", "main", time.Now().Add(-11*time.Minute), strings.Repeat("a long line without an end ", 10_000))
		Expect(who(ctx)).To(succeed("Pod worker: Running on node " + namespace + ", last log line 11m ago"))
	})

	DescribeTable("from the container that kubectl shows", func(ctx context.Context, annotations map[string]string, want string) {
		logs := serveLogs(ctx)
		hold(ctx, "v1", "Pod", run(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker", Annotations: annotations}}, "main", "proxy"))
		logs.Write(namespace, "worker", "main", time.Now().Add(-3*time.Hour), "begin")
		logs.Write(namespace, "worker", "proxy", time.Now().Add(-11*time.Minute), "one more connection")
		Expect(who(ctx)).To(succeed("last log line " + want + " ago"))
	},
		Entry("the first one", nil, "3h"),
		Entry("that of the annotation", map[string]string{"kubectl.kubernetes.io/default-container": "proxy"}, "11m"),
		Entry("the first one if there is none with the name of the annotation", map[string]string{"kubectl.kubernetes.io/default-container": "gone"}, "3h"),
	)

	It("and does not wait long for a node that does not answer", func(ctx context.Context) {
		var asked, most atomic.Int32
		silent := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			now := asked.Add(1)
			defer asked.Add(-1)
			for seen := most.Load(); seen < now && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			<-r.Context().Done()
		}))
		DeferCleanup(silent.Close)
		Expect(kubelet.CreateNode(ctx, clientset, namespace, silent.Listener.Addr().String())).To(Succeed())
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "main"}},
			}}},
		}
		Expect(cluster.Admin.Client.Create(ctx, job)).To(Succeed())
		for index := range 10 {
			run(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("nightly-%d", index), Labels: map[string]string{batchv1.ControllerUidLabel: string(job.UID)},
			}}, "main")
		}
		hold(ctx, "batch/v1", "Job", job)
		Expect(who(ctx)).To(succeed("Pod nightly-9: Running on node " + namespace + "\n"))
		Expect(most.Load()).To(BeNumerically(">", 5), "one after the other, ten of them would take ten times as long")
	})
})
