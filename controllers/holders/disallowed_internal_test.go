package holders

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
)

// A configuration or version that allows fewer kinds leaves such locks behind.
func TestALockOfADisallowedKindIsLoggedOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	held := func(uid types.UID) *v1alpha1.Lock {
		return &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: uid},
			Spec: v1alpha1.LockSpec{
				Key: "report", Owner: "secret-owner", HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Service", Name: "s", UID: "u"},
			},
		}
	}
	clock := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	locks := fake.NewClientBuilder().WithScheme(scheme).WithObjects(held("1")).Build()
	reconciler := &Reconciler{Client: locks, Clock: clock, Leadership: leadership.Always()}
	reconciler.watches = newHolderWatches(nil, clock, 1, reconciler.Leadership.IsLeader, func(types.NamespacedName) {})
	var lines []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	reconcile := func(want int) {
		t.Helper()
		for range 3 {
			if _, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "report"}}); err != nil {
				t.Fatal(err)
			}
		}
		if len(lines) != want {
			t.Fatalf("%d lines, want %d: %q", len(lines), want, lines)
		}
	}
	reconcile(1)
	if line := lines[0]; !strings.Contains(line, `"key"="lock:report"`) || !strings.Contains(line, `"kind"="Service"`) || strings.Contains(line, "secret") {
		t.Error(line)
	}
	if err := locks.Delete(ctx, held("1")); err != nil {
		t.Fatal(err)
	}
	reconcile(1)
	if len(reconciler.disallowed.logged) > 0 {
		t.Error("a lock that is gone is remembered")
	}
	if err := locks.Create(ctx, held("2")); err != nil {
		t.Fatal(err)
	}
	reconcile(2)
}
