package holders_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// runningWithToken creates a Pod of that account, and a token that is bound to it.
func runningWithToken(ctx context.Context, namespace, name string) (pod *corev1.Pod, token string) {
	GinkgoHelper()
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: template()}
	pod.Spec.ServiceAccountName = fixture.Worker
	Expect(admin.Create(ctx, pod)).To(Succeed())
	setPhase(ctx, pod, corev1.PodRunning, "")
	return pod, environment.WorkerToken(ctx, pod)
}

// vendorCall is a call of a function of locks.
func vendorCall(ctx context.Context, url, token, function, arguments string) *http.Request {
	GinkgoHelper()
	body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","call":{"function":"urn:k8s:forrst:ext:atomic-lock:fn:%s","arguments":%s}}`, function, arguments)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/forrst", strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	return request
}

// acquireWith acquires a lock with the bearer token and returns it as stored.
func acquireWith(ctx context.Context, url, token, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	response, err := http.DefaultClient.Do(vendorCall(ctx, url, token, "acquire", fmt.Sprintf(`{"key":%q}`, key)))
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
	return stored(ctx, namespace, key)
}

var _ = Describe("A caller of the façade", func() {
	var namespace string

	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx, nil)
	})

	DescribeTable("with the token of a Pod loses its lock when the Pod", func(ctx context.Context, end func(context.Context, *corev1.Pod)) {
		environment.AllowWorkers(ctx, namespace)
		pod, token := runningWithToken(ctx, namespace, "worker-0")

		lock := acquireWith(ctx, environment.StartFacade(ctx, ""), token, namespace, "report")
		Expect(lock.Spec.HolderRef).To(Equal(podRef(pod)))
		Expect(lock.OwnerReferences).To(BeEmpty(), "the garbage collector could delete the lock of the next holder")
		expectHeld(ctx, lock)
		end(ctx, pod)
		expectReleased(ctx, lock)
	},
		Entry("is deleted", func(ctx context.Context, pod *corev1.Pod) { remove(ctx, pod) }),
		Entry("fails", func(ctx context.Context, pod *corev1.Pod) { setPhase(ctx, pod, corev1.PodFailed, "") }),
	)

	It("may name the object, by the SDK, and be refused", func(ctx context.Context) {
		pod := running(ctx, namespace, "worker")
		backend, err := facadeclient.New(environment.StartFacade(ctx, namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(backend.Close)
		locks := lock.NewClient(backend, namespace, lock.WithoutRenewal())
		unknown := podRef(pod)
		unknown.UID = "other"
		_, err = locks.TryAcquire(ctx, "report", lock.WithHolderRef(unknown))
		Expect(err).To(MatchError(lock.ErrInvalid))
		Expect(client.IgnoreNotFound(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "report"}, &v1alpha1.Lock{}))).To(Succeed())

		_, err = locks.TryAcquire(ctx, "report", lock.WithHolderRef(podRef(pod)))
		Expect(err).NotTo(HaveOccurred())
		current := stored(ctx, namespace, "report")
		remove(ctx, pod)
		expectReleased(ctx, current)
	})
})
