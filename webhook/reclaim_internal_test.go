package webhook

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// If the delete of the expired lock is refused, the create would be told that the name is taken.
func TestAReclaimThatIsRefusedIsAnError(t *testing.T) {
	const owner = "owner-of-the-former-holder"
	denied := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "x.example.com" denied the request: not ` + owner,
		}}
	}
	locks := v1alpha1.Resource("locks")
	cases := map[string]struct {
		err       error
		isRefused bool
	}{
		"a lock that has changed":  {err: apierrors.NewConflict(locks, "k", errors.New("the object has been modified"))},
		"a lock that is gone":      {err: apierrors.NewNotFound(locks, "k")},
		"a webhook that conflicts": {err: denied(http.StatusConflict, metav1.StatusReasonConflict), isRefused: true},
		"a webhook that says 404":  {err: denied(http.StatusNotFound, metav1.StatusReasonNotFound), isRefused: true},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			granted := time.Unix(1_700_000_000, 0)
			expired := rules.Grant("default", rules.Acquisition{Key: "k", Owner: owner, Holder: "alice"}, rules.DefaultLimits(), granted)
			stored := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(expired).Build(), interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return test.err },
			})
			admission := LockAdmission{Client: stored, LiveReader: stored, Clock: clocktesting.NewFakePassiveClock(granted.Add(time.Hour))}
			err := admission.reclaim(t.Context(), client.ObjectKeyFromObject(expired), granted.Add(time.Hour), false)
			if (err != nil) != test.isRefused {
				t.Errorf("got %v; want an error: %t", err, test.isRefused)
			}
			if err != nil && strings.Contains(err.Error(), owner) {
				t.Errorf("the owner token is in %v", err)
			}
		})
	}
}

// slowReader answers a second after it was asked.
type slowReader struct {
	client.Reader

	clock *clocktesting.FakePassiveClock
}

func (r slowReader) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	return r.Reader.Get(ctx, name, into, options...)
}

// The next grant is stamped before the lock is read. It does not begin before the end of the one that it replaces.
func TestALockThatExpiresWhileItIsReadIsNotReplaced(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	lock := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.FullKeyOf("key").ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: "key", Owner: "token", TTL: &v1alpha1.Duration{Duration: time.Minute}},
	}
	held, _, err := rules.AdmitCreate(lock.DeepCopy(), rules.User{Name: "alice"}, rules.DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for begun, isFree := range map[time.Duration]bool{time.Minute - 500*time.Millisecond: false, time.Minute: true} {
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(held.DeepCopy()).Build()
		clock := clocktesting.NewFakePassiveClock(noon.Add(begun))
		handler := &LockAdmission{Client: cluster, LiveReader: slowReader{cluster, clock}, Limits: rules.DefaultLimits(), Clock: clock}
		if response := handler.Handle(t.Context(), creationOf(t, lock)); response.Allowed != isFree {
			t.Errorf("begun %s after the grant for a minute: %+v", begun, response.Result)
		}
	}
}
