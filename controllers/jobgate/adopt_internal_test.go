package jobgate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// afterGet is an engine after whose live reads something happens.
type afterGet struct {
	lock.Backend

	then func()
}

func (a afterGet) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	defer a.then()
	return a.Backend.Get(ctx, namespace, key)
}

// The cache of a new leader may show a grant that has ended meanwhile.
func TestAGrantThatOnlyTheCacheKnowsStartsNothing(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.afterLook = func() {
		w.afterLook = nil
		if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
			t.Error(err)
		}
		w.grantTo("alice")
	}
	w.pass(1)
	if w.isRunning(job) {
		t.Fatal("started without the lock")
	}
	if said := w.told(); len(said) > 0 {
		t.Errorf("told %q", said)
	}
}

func TestAGrantThatCannotBeVerifiedChangesNothing(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.engine.getting = errOutage
	w.wantError()
	w.wantError()
	if w.isRunning(job) {
		t.Fatal("started on what only the cache shows")
	}
	w.engine.getting = nil
	w.pass(1)
	if !w.isRunning(job) {
		t.Fatal("not started")
	}

	w.start()
	w.engine.getting = errOutage
	w.wantError()
	w.wantError()
	w.engine.getting = nil
	w.pass(1)
	if !w.isRunning(job) || w.holder() != "a" {
		t.Errorf("suspended by guess, and %q holds the lock", w.holder())
	}
}

// Any user may name a Job in the holderRef of a lock. So a lock of another holder is no
// grant, even if an operator of another user name took it for the Job.
func TestAGrantOfAnotherOperatorSuspendsTheJobAndIsLoggedOnce(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", running)
	w.pods[job.UID] = true
	w.grant(job)
	w.reconciler.Holder = "system:serviceaccount:platform-locks:lock-operator"
	var logged []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	for range 3 {
		if _, err := w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: theLock}); err != nil {
			t.Fatal(err)
		}
	}
	if w.isRunning(job) || w.holder() != "a" {
		t.Errorf("running: %t, and %q holds the lock", w.isRunning(job), w.holder())
	}
	if len(logged) != 1 {
		t.Fatalf("logged %q", logged)
	}
	for _, part := range []string{"another holder than this operator", "docs/operations.md", `"holder"="` + operator + `"`, w.reconciler.Holder} {
		if !strings.Contains(logged[0], part) {
			t.Errorf("%q lacks %q", logged[0], part)
		}
	}
}

// Whatever has made a grant for another process may take it back, as long as the grant was not renewed: it may have been
// unable to deliver it. A Job that is started under it would run without its lock then.
func TestAGrantOfAnotherProcessIsRenewedBeforeTheStart(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	granted := w.grant(job)
	w.clock.Step(time.Second)
	w.engine.renewing = errOutage
	w.wantError()
	if w.isRunning(job) {
		t.Fatal("started under a grant that may be taken back")
	}
	w.engine.renewing = nil
	w.pass(1)
	if !w.isRunning(job) {
		t.Fatal("not started")
	}
	if held := w.held(); held == nil || !held.Spec.RenewTime.After(granted.Spec.RenewTime.Time) {
		t.Errorf("started under %+v", held)
	}

	// It may have been taken back already.
	w = newWorld(t)
	job = w.create("a")
	w.grant(job)
	w.engine.renewing = lock.ErrNotHeld
	w.pass(1)
	if w.isRunning(job) {
		t.Error("started without its lock")
	}
}
