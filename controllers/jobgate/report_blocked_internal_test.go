package jobgate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// renewFor makes passes often enough to keep the lock.
func (w *world) renewFor(wait time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(wait); w.clock.Now().Before(end); {
		w.clock.Step(min(10*time.Second, end.Sub(w.clock.Now())))
		w.pass(1)
		w.awaitAnnotations()
	}
}

func TestAJobThatHoldsItsLockAndIsNotStartedIsTold(t *testing.T) {
	w := newWorld(t)
	other := w.create("a", stopping)
	w.pods[other.UID] = true
	holder := w.create("b", annotated(v1alpha1.LockWaitingAnnotation, "place 1 of 1"))
	w.grant(holder)
	w.pass(1)
	if said := w.told(); len(said) > 0 {
		t.Fatalf("told at once: %q", said)
	}
	tellingAfter := func(wait time.Duration) []string {
		w.renewFor(wait)
		return w.told()
	}
	const blocked = "olds lock:key since 2026-11-21T10:00:00Z, and is started when the pods of the Job a have ended"
	if diff := cmp.Diff([]string{"Normal LockBlocked H" + blocked}, tellingAfter(reportAfter)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if note := w.note(holder); note != "h"+blocked {
		t.Errorf("the note is %q", note)
	}
	if said := tellingAfter(time.Minute); len(said) > 0 {
		t.Errorf("told again after a minute: %q", said)
	}
	if said := tellingAfter(reportEvery); len(said) != 1 {
		t.Errorf("told %q after ten minutes", said)
	}
	w.write(other, answered)
	w.pods[other.UID] = false
	for range 4 {
		w.clock.Step(podsPeriod)
		w.pass(1)
		w.awaitAnnotations()
	}
	if !w.isRunning(holder) || w.note(holder) != "" {
		t.Errorf("started: %t, with the note %q", w.isRunning(holder), w.note(holder))
	}
}

// A Job that waits for a moment costs no write but that of its start.
func TestABlockedJobWithoutAnAnnotationGetsOneLate(t *testing.T) {
	w := newWorld(t)
	other := w.create("a", stopping)
	w.pods[other.UID] = true
	holder := w.create("b")
	w.grant(holder)
	for _, step := range []struct {
		after       time.Duration
		isAnnotated bool
	}{{reportAfter, false}, {reportEvery, true}} {
		w.renewFor(step.after)
		if got := w.note(holder) != ""; got != step.isAnnotated {
			t.Errorf("%s later: annotated %t", step.after, got)
		}
	}
}

// A quota, a missing service account and a parallelism of 0 keep a Job from its pods for as long as they are there.
func TestJobsBehindOneWithoutPodsAreTold(t *testing.T) {
	w := newWorld(t)
	w.reconciler.AnnotateAfter = time.Minute
	holder := w.create("a")
	behind := w.create("b")
	w.clock.Step(30 * time.Second) // Its regular reports are due at other times.
	w.grant(holder)
	w.pass(2)
	w.renewFor(30 * time.Second)
	w.create("later") // Its annotation is not due yet.
	w.renewFor(20 * time.Second)
	if said := strings.Join(w.told(), "\n"); strings.Contains(said, "pods") || !strings.Contains(said, "Normal LockWaiting Waits at place 2 of 2") {
		t.Fatalf("told %q before a minute was over", said)
	}
	const without = ", on behalf of Job a, which was started and has no pods: see its events"
	w.renewFor(10 * time.Second)
	said := w.told()
	if len(said) != 2 {
		t.Fatalf("told %q after a minute", said)
	}
	for index, each := range said {
		want := fmt.Sprintf("Warning LockHolderWithoutPods Waits at place %d of 2: lock:key is held by ", index+1)
		if !strings.HasPrefix(each, want) || !strings.HasSuffix(each, without) {
			t.Errorf("told %q after a minute", each)
		}
	}
	if note := w.note(behind); !strings.HasSuffix(note, without) {
		t.Errorf("the note is %q", note)
	}
	skipped := w.create("c", skip)
	w.renewFor(5 * time.Minute)
	if message := w.read(skipped).Status.Conditions[0].Message; !strings.HasSuffix(message, without) {
		t.Errorf("one that does not wait ends with %q", message)
	}
	if said := strings.Join(w.told(), "\n"); strings.Contains(said, "LockHolderWithoutPods") {
		t.Errorf("told again: %q", said)
	}
	if !w.isRunning(holder) || w.holder() != "a" {
		t.Errorf("%q has the lock, want the Job that may yet get its pods", w.holder())
	}
	w.write(holder, func(job *batchv1.Job) { job.Status.Active = 1 })
	w.renewFor(reportEvery)
	if note := w.note(behind); !strings.HasSuffix(note, "on behalf of Job a") {
		t.Errorf("the note is %q when it has pods", note)
	}

	w.told()
	w.write(holder, func(job *batchv1.Job) { job.Status.Active = 0 }) // One has failed, and the next comes after a backoff.
	w.renewFor(noPodsAfter - 10*time.Second)
	if said := strings.Join(w.told(), "\n"); strings.Contains(said, "pods") {
		t.Errorf("told %q before it had none for a minute", said)
	}
	w.renewFor(20 * time.Second)
	if said := strings.Join(w.told(), "\n"); !strings.Contains(said, "LockHolderWithoutPods") {
		t.Errorf("told %q when it had none for a minute", said)
	}
}

func TestALostLockSaysHowItWasLost(t *testing.T) {
	const lost, then = "Does not hold lock:key any more: ", ". The Job is suspended, and waits for the lock again"
	for name, test := range map[string]struct {
		lose func(*world, *v1alpha1.Lock)
		want string
	}{
		"by a forced release": {func(w *world, held *v1alpha1.Lock) {
			if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
				t.Fatal(err)
			}
			held.Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "it hangs"}
			w.reconciler.noteEvent(held, true)
		}, `its release was forced, with the reason "it hangs"`},
		"by a deletion": {func(w *world, _ *v1alpha1.Lock) {
			if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
				t.Fatal(err)
			}
		}, "its release was forced"},
		"by its expiry": {func(w *world, _ *v1alpha1.Lock) { w.clock.Step(time.Hour) }, "it expired at 2026-11-21T"},
		"by a renewal that came too late": {func(w *world, _ *v1alpha1.Lock) {
			w.clock.Step(jobs.DefaultTTL / 2)
			w.engine.Backend = lateRenewals{w.locks, func() { w.clock.Step(jobs.DefaultTTL) }}
		}, "it expired at 2026-11-21T"},
		"before this process began": {func(w *world, _ *v1alpha1.Lock) {
			w.start()
			if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
				t.Fatal(err)
			}
		}, "it expired during an outage, or its release was forced"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			job := w.create("a")
			w.grant(job)
			w.pass(2)
			w.told()
			test.lose(w, w.held())
			w.pass(2)
			got := strings.Join(w.told(), "\n")
			if !strings.HasPrefix(got, "Warning LockLost "+lost+test.want) || !strings.Contains(got, then) {
				t.Errorf("told %q", got)
			}
		})
	}
}

func TestTheReasonOfAnotherGrantIsNotThatOfALoss(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	held := w.grant(job)
	w.pass(2)
	held.Spec.Owner, held.Annotations = "former", map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "of another"}
	w.reconciler.noteEvent(held, true)
	if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
		t.Fatal(err)
	}
	w.pass(2)
	if got := strings.Join(w.told(), "\n"); strings.Contains(got, "of another") || !strings.Contains(got, "LockLost") {
		t.Errorf("told %q", got)
	}
}
