package webhook

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestForeignChangesOfOneLockAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	changes := newForeignChanges()
	taken := func(uid string) (count int) {
		t.Helper()
		for {
			err := changes.take(&v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1alpha1.LockSpec{Key: "a"}}, now)
			if err == nil {
				count++
				continue
			}
			if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds != 1 {
				t.Fatalf("got %v, to try again after %d s", err, seconds)
			}
			return count
		}
	}
	if got := taken("a"); got != foreignChangeBurst {
		t.Errorf("%d changes are admitted at once", got)
	}
	if got := taken("b"); got != foreignChangeBurst {
		t.Errorf("%d changes of another lock are admitted", got)
	}
	now = now.Add(2 * time.Second)
	if got := taken("a"); got != 2 {
		t.Errorf("%d changes are admitted after two seconds", got)
	}
	for number := range 2 * maxForeignlyChanged {
		taken(fmt.Sprint(number))
	}
	if got := changes.byLock.Len(); got > maxForeignlyChanged+1 {
		t.Errorf("%d locks are remembered", got)
	}
}
