package outage_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// counter counts the creates of locks that are sent.
type counter struct {
	next http.RoundTripper
	mu   sync.Mutex
	sent int
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/locks") {
		c.mu.Lock()
		c.sent++
		c.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// lines are what an engine has logged about refusals.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(_, args string) {
	if !strings.Contains(args, " refuses ") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, args)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

// refusing is a namespace whose locks the API server comes to refuse, and a façade for it.
type refusing struct {
	namespace string
	creates   *counter
	logged    *lines
}

// serve returns the locks of the namespace through a new façade with the identity.
func (r *refusing) serve(ctx context.Context, config *rest.Config) lock.Backend {
	GinkgoHelper()
	r.creates, r.logged = &counter{}, &lines{}
	creates := r.creates
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		creates.next = next
		return creates
	})
	url, stop, err := testenv.StartFacade(ctx, config, testfacade.Settings{Namespace: r.namespace, Logger: funcr.New(r.logged.add, funcr.Options{})})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stop)
	backend, err := client.New(url)
	Expect(err).NotTo(HaveOccurred())
	return backend
}

func (r *refusing) acquire(ctx context.Context, backend lock.Backend, key string, wait time.Duration) error {
	_, err := backend.Acquire(ctx, r.namespace, lock.Request{Acquisition: rules.Acquisition{Key: key, TTL: time.Hour}, Wait: wait})
	return err
}

// expectRefusals checks that callers that wait and that do not are refused with the reason, and not when they have waited.
func (r *refusing) expectRefusals(ctx context.Context, backend lock.Backend, reason string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, wait := range []time.Duration{0, time.Hour} {
		err := r.acquire(ctx, backend, "wanted", wait)
		Expect(err).To(MatchError(lock.ErrRefused))
		Expect(err).NotTo(MatchError(lock.ErrUnavailable))
		refused, ok := errors.AsType[*lock.RefusedError](err)
		Expect(ok).To(BeTrue())
		Expect(refused.Reason).To(HavePrefix(reason))
	}
}

// expectOneRequestEach checks that the two refused callers have sent one request each, and none again.
func (r *refusing) expectOneRequestEach() {
	GinkgoHelper()
	Consistently(r.creates.count).WithTimeout(3 * time.Second).WithPolling(time.Second).Should(Equal(2))
	Expect(r.logged.all()).To(HaveLen(1))
}

// terminate has the namespace refuse all that is new.
func (r *refusing) terminate(ctx context.Context, backend lock.Backend) {
	GinkgoHelper()
	Expect(environment.Admin.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})).To(Succeed())
	Eventually(func() error { return r.acquire(ctx, backend, "other", 0) }).WithTimeout(patience).Should(MatchError(lock.ErrRefused))
}

var _ = Describe("A façade whose API server refuses locks", func() {
	var (
		served    *refusing
		namespace string
	)
	BeforeEach(func(ctx context.Context) {
		namespace = environment.Namespace(ctx, "refused-")
		served = &refusing{namespace: namespace}
	})

	It("by a quota tells its callers so, and lets go of what is held", func(ctx context.Context) {
		backend := served.serve(ctx, environment.Operator().Config)
		Expect(served.acquire(ctx, backend, "held", 0)).To(Succeed())
		held, err := backend.Get(ctx, namespace, "lock:held")
		Expect(err).NotTo(HaveOccurred())
		limit := corev1.ResourceList{"count/locks.forrst.dev": resource.MustParse("1")}
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "locks"},
			Spec:       corev1.ResourceQuotaSpec{Hard: limit},
		}
		Expect(environment.Admin.Client.Create(ctx, quota)).To(Succeed())
		quota.Status = corev1.ResourceQuotaStatus{Hard: limit, Used: limit}
		Expect(environment.Admin.Client.Status().Update(ctx, quota)).To(Succeed())
		Eventually(func() error { return served.acquire(ctx, backend, "other", 0) }).WithTimeout(patience).Should(MatchError(lock.ErrRefused))
		backend = served.serve(ctx, environment.Operator().Config)
		served.expectRefusals(ctx, backend, "exceeded quota: locks, requested: count/locks.forrst.dev=1, used: count/locks.forrst.dev=1, limited: ")
		served.expectOneRequestEach()
		_, err = backend.Renew(ctx, namespace, "lock:held", lock.Proof{Owner: held.Spec.Owner}, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(backend.Release(ctx, namespace, "lock:held", lock.Proof{Owner: held.Spec.Owner})).To(Succeed())
	})

	It("in a namespace that is being deleted tells its callers so, and lets go of what is held", func(ctx context.Context) {
		backend := served.serve(ctx, environment.Operator().Config)
		Expect(served.acquire(ctx, backend, "held", 0)).To(Succeed())
		held, err := backend.Get(ctx, namespace, "lock:held")
		Expect(err).NotTo(HaveOccurred())
		served.terminate(ctx, backend)
		backend = served.serve(ctx, environment.Operator().Config)
		served.expectRefusals(ctx, backend, "unable to create new content in namespace "+namespace+" because it is being terminated")
		served.expectOneRequestEach()
		_, err = backend.Renew(ctx, namespace, "lock:held", lock.Proof{Owner: held.Spec.Owner}, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(backend.Release(ctx, namespace, "lock:held", lock.Proof{Owner: held.Spec.Owner})).To(Succeed())
	})

	DescribeTable("by a policy tells its callers so, without owner tokens", func(ctx context.Context, reason *metav1.StatusReason) {
		backend := served.serve(ctx, environment.Operator().Config)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"locks"}},
					}}},
				},
				Validations: []admissionregistrationv1.Validation{{
					Expression: "false", MessageExpression: "'no locks for ' + object.spec.owner + ' in this season'", Reason: reason,
				}},
			},
		}
		Expect(environment.Admin.Client.Create(ctx, policy)).To(Succeed())
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
				},
			},
		}
		Expect(environment.Admin.Client.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(ctrlclient.IgnoreNotFound(environment.Admin.Client.Delete(ctx, binding))).To(Succeed())
			Expect(ctrlclient.IgnoreNotFound(environment.Admin.Client.Delete(ctx, policy))).To(Succeed())
		})
		Eventually(func() error { return served.acquire(ctx, backend, "other", 0) }).WithTimeout(patience).Should(MatchError(lock.ErrRefused))
		backend = served.serve(ctx, environment.Operator().Config)
		served.expectRefusals(ctx, backend, "ValidatingAdmissionPolicy '"+namespace+"' with binding '"+namespace+"' denied request: no locks for [owner] in this season")
		served.expectOneRequestEach()
	},
		Entry("as invalid, which is the default", nil),
		Entry("as forbidden", new(metav1.StatusReasonForbidden)),
		Entry("as too large", new(metav1.StatusReasonRequestEntityTooLarge)),
	)

	It("to the operator itself is unavailable, and logs why once", func(ctx context.Context) {
		backend := served.serve(ctx, environment.Identity("stranger").Config)
		for range 3 {
			Expect(served.acquire(ctx, backend, "wanted", 0)).To(MatchError(lock.ErrUnavailable))
		}
		Expect(served.logged.all()).To(ConsistOf(ContainSubstring(`User \"stranger\" cannot create resource \"locks\"`)))
	})
})
