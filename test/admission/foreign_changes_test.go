package admission_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// label sets a label of the lock by a patch, which is no update of what was read, and returns the answer.
// Unlike those of client-go and kubectl, it is not repeated when it is refused for the moment.
func label(ctx context.Context, who fixture.Identity, lock *v1alpha1.Lock, value string) (code int, text string) {
	GinkgoHelper()
	caller, err := rest.HTTPClientFor(who.Config)
	Expect(err).NotTo(HaveOccurred())
	url := fmt.Sprintf("%s/apis/%s/namespaces/%s/locks/%s", strings.TrimSuffix(who.Config.Host, "/"), v1alpha1.GroupVersion, lock.Namespace, lock.Name)
	patch := fmt.Sprintf(`{"metadata":{"labels":{"at":%q}}}`, value)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, strings.NewReader(patch))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", string(types.MergePatchType))
	response, err := caller.Do(request)
	if ctx.Err() != nil {
		return 0, ""
	}
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if ctx.Err() == nil {
		Expect(err).NotTo(HaveOccurred())
	}
	return response.StatusCode, string(answer)
}

var _ = Describe("A held lock that other users change all the time", func() {
	It("is changed by them once per second, and by its holder at any time", func(ctx context.Context) {
		billing := held(ctx, newNamespace(ctx), "billing:report")
		var code, number int
		var text string
		for code != http.StatusTooManyRequests && number < 100 {
			number++
			code, text = label(ctx, stranger, billing, fmt.Sprint("stranger-", number))
		}
		Expect(text).To(And(ContainSubstring("is held by another user, and was changed too often"), ContainSubstring(`"retryAfterSeconds":1`)))
		for number := range 20 {
			code, text := label(ctx, worker, billing, fmt.Sprint("worker-", number))
			Expect(code).To(Equal(http.StatusOK), text)
		}
		_, err := run(ctx, administrator, billing.Namespace, "", "annotate", "lock", billing.Name, v1alpha1.ForceReleaseReasonAnnotation+"=it hangs")
		Expect(err).NotTo(HaveOccurred(), "a user who may force a release says why at any time")
	})

	It("is renewed and released by its holder", func(ctx context.Context) {
		renewAmongStrangers(ctx, 2, time.Hour)
	})
})

// renewAmongStrangers has the holder of a lock renew it again and again, and release it, while so many strangers try to change
// it without a pause. A renewal repeats its write for 5 s, and each change by another user makes a try fail that is under way.
func renewAmongStrangers(ctx context.Context, count int, ttl time.Duration) {
	GinkgoHelper()
	const renewals = 8
	namespace, key, proof := newNamespace(ctx), v1alpha1.FullKeyOf("billing:report"), lock.Proof{Owner: "facade-token"}
	facade := startFacade(ctx, namespace)
	request := requestFor("billing:report")
	request.TTL = ttl
	acquired, err := facade.Acquire(ctx, namespace, request)
	Expect(err).NotTo(HaveOccurred())

	changing, stop := context.WithCancel(ctx)
	var strangers sync.WaitGroup
	DeferCleanup(strangers.Wait)
	DeferCleanup(stop)
	billing := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: acquired.Name}}
	for each := range count {
		strangers.Go(func() {
			defer GinkgoRecover()
			for number := 0; changing.Err() == nil; number++ {
				label(changing, stranger, billing, fmt.Sprint(each, "-", number)) // Most are refused.
			}
		})
	}
	began := time.Now()
	for renewal := range renewals {
		_, err := facade.Renew(ctx, namespace, key, proof, ttl)
		Expect(err).NotTo(HaveOccurred(), "renewal %d, %s after the first", renewal, time.Since(began))
	}
	Expect(facade.Release(ctx, namespace, key, proof)).To(Succeed())
	expectGone(ctx, billing)
}
