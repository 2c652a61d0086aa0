package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook"
)

// These specs call the handler itself, on a real API server: a client cannot arrange a stale
// cache or a stale read.
var _ = Describe("A create under a name that was taken", func() {
	// stored is a lock that has expired by later, as it was when it was read.
	var stored *v1alpha1.Lock
	var later time.Time

	// handler reads the lock from the cache and then live as given.
	handler := func(cached, live client.Reader, allowance time.Duration) *webhook.LockAdmission {
		return &webhook.LockAdmission{
			Client:             readingFrom{Client: operator, Reader: cached},
			LiveReader:         live,
			Limits:             rules.DefaultLimits(),
			ClockSkewAllowance: allowance,
			Clock:              clocktesting.NewFakePassiveClock(later),
		}
	}
	exists := func(ctx context.Context) bool {
		GinkgoHelper()
		err := operator.Get(ctx, client.ObjectKeyFromObject(stored), &v1alpha1.Lock{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return err == nil
	}

	BeforeEach(func(ctx context.Context) {
		stored = created(ctx, alice, manifest("namesake", ttl(time.Minute)))
		later = stored.Spec.ExpireTime.Add(time.Second)
	})

	It("deletes an expired lock", func(ctx context.Context) {
		response := handler(operator, operator, time.Second).Handle(ctx, createByBob())
		Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
		Expect(exists(ctx)).To(BeFalse())
	})

	It("waits for the clock skew allowance", func(ctx context.Context) {
		response := handler(operator, operator, 2*time.Second).Handle(fromAPIServer(ctx), createByBob())
		Expect(response.Allowed).To(BeFalse())
		Expect(response.Result.Message).To(And(ContainSubstring("has expired, but is kept"), Not(ContainSubstring("alice"))))
		Expect(exists(ctx)).To(BeTrue())
	})

	It("waits for the clock skew allowance in an update, too", func(ctx context.Context) {
		taken := stored.DeepCopy()
		taken.Spec.Owner = "token-b"
		response := handler(operator, operator, 2*time.Second).Handle(ctx, updateByBob(stored, taken))
		Expect(response.Allowed).To(BeFalse())
		response = handler(operator, operator, time.Second).Handle(ctx, updateByBob(stored, taken))
		Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
	})

	It("does not delete a lock that has expired only in the cache", func(ctx context.Context) {
		renew(ctx, stored.DeepCopy())
		response := handler(frozen{stored}, operator, 0).Handle(ctx, createByBob())
		Expect(response.Allowed).To(BeFalse())
		Expect(exists(ctx)).To(BeTrue())
	})

	It("keeps nothing of the cached lock that the stored one no longer has", func(ctx context.Context) {
		cached := stored.DeepCopy()
		cached.DeletionTimestamp = new(metav1.Now())
		live := &remembering{Reader: operator}
		handler(frozen{cached}, live, time.Second).Handle(ctx, createByBob())
		Expect(live.read.DeletionTimestamp).To(BeNil())
	})

	It("leaves the decision to etcd if the lock is renewed between read and delete", func(ctx context.Context) {
		renew(ctx, stored.DeepCopy())
		response := handler(frozen{stored}, frozen{stored}, 0).Handle(ctx, createByBob())
		Expect(response.Allowed).To(BeTrue(), "%v", response.Result)
		Expect(exists(ctx)).To(BeTrue(), "a lock that is held was deleted")
	})
})

func renew(ctx context.Context, lock *v1alpha1.Lock) {
	GinkgoHelper()
	ttl(time.Hour)(lock)
	Expect(alice.Update(ctx, lock)).To(Succeed())
}

// readingFrom writes to the API server and reads from somewhere else.
type readingFrom struct {
	client.Client
	client.Reader
}

func (r readingFrom) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return r.Reader.Get(ctx, key, object, options...)
}

func (r readingFrom) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return r.Reader.List(ctx, list, options...)
}

// remembering keeps the lock that it has read last.
type remembering struct {
	client.Reader
	read *v1alpha1.Lock
}

func (r *remembering) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.read = object.(*v1alpha1.Lock)
	return r.Reader.Get(ctx, key, object, options...)
}

// frozen shows one lock as it was.
type frozen struct{ lock *v1alpha1.Lock }

func (f frozen) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return fmt.Errorf("unexpected read of a %T", object)
	}
	f.lock.DeepCopyInto(lock)
	return nil
}

func (frozen) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("unexpected list")
}

func createByBob() admission.Request {
	GinkgoHelper()
	return request(admissionv1.Create, nil, manifest("namesake"))
}

func updateByBob(old, updated *v1alpha1.Lock) admission.Request {
	GinkgoHelper()
	return request(admissionv1.Update, old, updated)
}

func request(operation admissionv1.Operation, old, submitted *v1alpha1.Lock) admission.Request {
	GinkgoHelper()
	encode := func(lock *v1alpha1.Lock) runtime.RawExtension {
		if lock == nil {
			return runtime.RawExtension{}
		}
		raw, err := json.Marshal(lock)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: raw}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation,
		Name:      submitted.Name,
		Namespace: submitted.Namespace,
		Resource:  metav1.GroupVersionResource{Group: "forrst.dev", Version: "v1alpha1", Resource: "locks"},
		UserInfo:  authenticationv1.UserInfo{Username: "bob"},
		Object:    encode(submitted),
		OldObject: encode(old),
	}}
}
