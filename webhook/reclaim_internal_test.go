package webhook

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

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
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(held).Build()
	for begun, isFree := range map[time.Duration]bool{time.Minute - 500*time.Millisecond: false, time.Minute: true} {
		clock := clocktesting.NewFakePassiveClock(noon.Add(begun))
		handler := &LockAdmission{Client: cluster, LiveReader: slowReader{cluster, clock}, Limits: rules.DefaultLimits(), Clock: clock}
		if response := handler.Handle(t.Context(), creationOf(t, lock)); response.Allowed != isFree {
			t.Errorf("begun %s after the grant for a minute: %+v", begun, response.Result)
		}
	}
}
