package jobgate

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/fairqueue"
)

func TestUrgencyOfAPass(t *testing.T) {
	holds := &passResult{owner: "mine", version: "5"}
	for name, test := range map[string]struct {
		pass  *passResult
		shown *lockEvent
		want  fairqueue.Urgency
	}{
		"nothing is known":                      {want: fairqueue.Start},
		"a Job waits for a foreign holder":      {pass: &passResult{}, shown: &lockEvent{owner: "other", version: "6"}, want: fairqueue.Start},
		"a Job waits and the lock is gone":      {pass: &passResult{}, shown: &lockEvent{version: "6"}, want: fairqueue.Start},
		"a Job was granted the lock":            {pass: &passResult{}, shown: &lockEvent{owner: "mine", version: "6", isForJob: true}, want: fairqueue.Hold},
		"a lock is to be adopted":               {shown: &lockEvent{owner: "mine", version: "6", isForJob: true}, want: fairqueue.Hold},
		"a Job holds it":                        {pass: holds, want: fairqueue.Hold},
		"it was renewed":                        {pass: holds, shown: &lockEvent{owner: "mine", version: "6", isForJob: true}, want: fairqueue.Hold},
		"the event is about the time before":    {pass: holds, shown: &lockEvent{version: "4"}, want: fairqueue.Hold},
		"it is gone":                            {pass: holds, shown: &lockEvent{version: "6"}, want: fairqueue.Stop},
		"its deletion was missed":               {pass: holds, shown: &lockEvent{gone: "mine", version: "4"}, want: fairqueue.Stop},
		"one before it is gone":                 {pass: holds, shown: &lockEvent{gone: "other", version: "4"}, want: fairqueue.Hold},
		"it has another holder":                 {pass: holds, shown: &lockEvent{owner: "other", version: "6"}, want: fairqueue.Stop},
		"it was granted to another Job":         {pass: holds, shown: &lockEvent{owner: "other", version: "6", isForJob: true}, want: fairqueue.Stop},
		"a Job runs though it does not hold it": {pass: &passResult{mustStop: true}, want: fairqueue.Stop},
	} {
		if got := urgencyOf(test.pass, test.shown); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// theRequest is for a pass over the lock.
var theRequest = ctrl.Request{NamespacedName: theLock}

func TestPassesAreAsUrgentAsTheirLockIs(t *testing.T) {
	w := newWorld(t)
	want := func(when string, want fairqueue.Urgency) {
		t.Helper()
		if got := w.reconciler.urgencyOf(theRequest); got != want {
			t.Errorf("%s: got %d, want %d", when, got, want)
		}
	}
	want("no Job wants the lock", fairqueue.Start)
	job := w.create("a")
	w.grant(job)
	w.pass(2)
	want("a Job holds it", fairqueue.Hold)
	if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
		t.Fatal(err)
	}
	w.reconciler.noteEvent(&v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: theLock.Name, ResourceVersion: "1000000"}}, true)
	want("its lock was released by force", fairqueue.Stop)
	w.refuse = func(client.Object, bool) error { return errOutage }
	w.wantError()
	want("its suspension failed", fairqueue.Stop)
	w.refuse = nil
	w.pass(1)
	want("it was suspended", fairqueue.Start)
}

func TestAMissedDeletionIsUrgent(t *testing.T) {
	w := newWorld(t)
	granted := w.grant(w.create("a"))
	w.pass(2)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	w.reconciler.lockEvents().Delete(t.Context(), event.DeleteEvent{Object: granted, DeleteStateUnknown: true}, queue)
	if got := w.reconciler.urgencyOf(theRequest); got != fairqueue.Stop || queue.Len() != 1 {
		t.Errorf("got %d with %d passes", got, queue.Len())
	}
}

func TestANewLeaderRenewsBeforeItStarts(t *testing.T) {
	w := newWorld(t)
	w.grant(w.create("a"))
	if requests, err := w.reconciler.everyLock(t.Context()); err != nil || !slices.Contains(requests, theRequest) {
		t.Fatalf("got %v, %v", requests, err)
	}
	if got := w.reconciler.urgencyOf(theRequest); got != fairqueue.Hold {
		t.Errorf("got %d", got)
	}
}

// Otherwise many idle Jobs would cause as many passes again as their renewals.
func TestARenewalCausesNoPass(t *testing.T) {
	w := newWorld(t)
	granted := w.grant(w.create("a"))
	for name, test := range map[string]struct {
		change func(*v1alpha1.Lock)
		want   int
	}{
		"a renewal": {func(held *v1alpha1.Lock) {
			later := v1alpha1.NewTimestamp(held.Spec.RenewTime.Add(time.Second))
			expire := v1alpha1.NewTimestamp(held.Spec.ExpireTime.Add(time.Second))
			held.Spec.RenewTime, held.Spec.ExpireTime = &later, &expire
		}, 0},
		"an annotation": {func(held *v1alpha1.Lock) { held.Annotations = map[string]string{"a": "b"} }, 0},
		"an earlier end": {func(held *v1alpha1.Lock) {
			expire := v1alpha1.NewTimestamp(held.Spec.ExpireTime.Add(-time.Second))
			held.Spec.ExpireTime = &expire
		}, 1},
		"another owner":  {func(held *v1alpha1.Lock) { held.Spec.Owner = "other" }, 1},
		"another object": {func(held *v1alpha1.Lock) { held.UID = "other" }, 1},
		"a deletion that finalizers hold up": {func(held *v1alpha1.Lock) {
			now := metav1.NewTime(held.Spec.RenewTime.Time)
			held.DeletionTimestamp = &now
		}, 1},
		"another holder object": {func(held *v1alpha1.Lock) { held.Spec.HolderRef.UID = "other" }, 1},
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		changed := granted.DeepCopy()
		test.change(changed)
		w.reconciler.lockEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: granted, ObjectNew: changed}, queue)
		if got := queue.Len(); got != test.want {
			t.Errorf("%s: %d passes, want %d", name, got, test.want)
		}
		queue.ShutDown()
	}
}

func TestEventsAboutLocksOfNoJobCauseNoPass(t *testing.T) {
	w := newWorld(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	w.grantTo("alice")
	held := w.held()
	events := w.reconciler.lockEvents()
	events.Create(t.Context(), event.CreateEvent{Object: held}, queue)
	events.Delete(t.Context(), event.DeleteEvent{Object: held}, queue)
	if queue.Len() > 0 {
		t.Error("no Job wants it")
	}
	w.create("a")
	w.pass(1)
	events.Delete(t.Context(), event.DeleteEvent{Object: held}, queue)
	if queue.Len() != 1 {
		t.Error("a Job waits for it")
	}
}
