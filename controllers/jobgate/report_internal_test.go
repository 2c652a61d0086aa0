package jobgate

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

func (w *world) note(job *batchv1.Job) string {
	w.t.Helper()
	return w.read(job).Annotations[v1alpha1.LockWaitingAnnotation]
}

func TestWaitingJobsAreReportedInTurns(t *testing.T) {
	w := newWorld(t)
	w.grantTo(strings.Repeat("ä", audit.MaxMessageBytes))
	var created []*batchv1.Job
	for i := range maxReportsPerPass + 3 {
		created = append(created, w.create(fmt.Sprintf("job-%02d", i)))
	}
	w.pass(1)
	w.awaitAnnotations()
	if said := w.told(); len(said) > 0 || w.note(created[0]) != "" {
		t.Fatalf("told at once: %q", said)
	}
	told := func() (number int) {
		for _, job := range created {
			if w.note(job) != "" {
				number++
			}
		}
		return number
	}
	for _, want := range []int{maxReportsPerPass, len(created), len(created)} {
		w.clock.Step(reportAfter)
		result, err := w.tryPass()
		if err != nil {
			t.Fatal(err)
		}
		w.awaitAnnotations()
		if got := told(); got != want {
			t.Errorf("told %d Jobs, want %d", got, want)
		}
		if want < len(created) && result.RequeueAfter > reportAfter {
			t.Errorf("comes back to the others in %s", result.RequeueAfter)
		}
	}
	if said := w.told(); len(said) != len(created) {
		t.Errorf("%d events", len(said))
	}
	if note := w.note(created[1]); !strings.HasPrefix(note, "place 2 of 23 at 2026-11-21T10:00:01Z: lock:key is held by ") || len(note) > audit.MaxMessageBytes {
		t.Errorf("the note is %q", note)
	}
	w.clock.Step(reportEvery)
	w.pass(1)
	w.awaitAnnotations()
	if note := w.note(created[1]); !strings.Contains(note, "10:10:03Z") {
		t.Errorf("the note is %q ten minutes later", note)
	}
}

// Between two reports a waiting Job costs neither an event nor a write.
func TestAWaitingJobIsToldEveryTenMinutes(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	w.create("a")
	w.clock.Step(reportAfter)
	w.pass(2)
	w.awaitAnnotations()
	if said := w.told(); len(said) != 1 {
		t.Fatalf("told %q at first", said)
	}
	var writes atomic.Int32
	w.refuse = func(client.Object, bool) error {
		writes.Add(1)
		return nil
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{reportEvery - time.Second, 0}, {time.Second, 1}} {
		w.clock.Step(step.after)
		w.pass(1)
		w.awaitAnnotations()
		if said := w.told(); len(said) != step.want || int(writes.Load()) != step.want {
			t.Errorf("%s later: told %q and wrote %d times, want %d", step.after, said, writes.Load(), step.want)
		}
	}
}

// TestAShortWaitChangesNoJob is about many Jobs that each wait for the one before: their
// events tell as much, at less cost.
func TestAShortWaitChangesNoJob(t *testing.T) {
	w := newWorld(t)
	w.reconciler.AnnotateAfter = 0
	w.grantTo("alice")
	job := w.create("a")
	w.pass(1)
	for _, step := range []struct {
		after        time.Duration
		events       int
		isAnnotated  bool
		comesBackMax time.Duration
	}{
		{reportAfter, 1, false, defaultAnnotateAfter},
		{defaultAnnotateAfter - reportAfter - time.Millisecond, 0, false, time.Millisecond},
		{time.Millisecond, 0, true, reportEvery},
		{reportEvery, 1, true, reportEvery},
	} {
		w.clock.Step(step.after)
		result, err := w.tryPass()
		if err != nil {
			t.Fatal(err)
		}
		w.awaitAnnotations()
		if said := w.told(); len(said) != step.events || (w.note(job) != "") != step.isAnnotated || result.RequeueAfter > step.comesBackMax {
			t.Errorf("%s later: events %q, note %q, comes back in %s", step.after, said, w.note(job), result.RequeueAfter)
		}
	}
}

// Most keys have no Job, or only Jobs that have ended.
func TestNoPassIsScheduledWithoutWaitingJobs(t *testing.T) {
	w := newWorld(t)
	for _, ended := range []bool{false, true} {
		if ended {
			w.complete(w.create("a", running), false)
			w.pass(3)
		}
		if result, err := w.tryPass(); err != nil || result.RequeueAfter != 0 {
			t.Errorf("with a Job that has ended: %t; comes back in %s, %v", ended, result.RequeueAfter, err)
		}
	}
}

// A Job that is paused has no annotation any more.
func TestAJobThatQueuesAgainIsReportedAgain(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	job := w.create("a")
	w.clock.Step(reportAfter)
	w.pass(2)
	w.awaitAnnotations()
	w.write(job, func(job *batchv1.Job) {
		delete(job.Annotations, v1alpha1.LockWaitingAnnotation)
		job.Annotations[v1alpha1.LockQueuedTimeAnnotation] = jobs.FormatTime(w.clock.Now())
	})
	w.clock.Step(reportAfter)
	w.pass(1)
	w.awaitAnnotations()
	if said := w.told(); len(said) != 2 || w.note(job) == "" {
		t.Errorf("told %q, note %q", said, w.note(job))
	}
}

// Passes over other locks have told as many Jobs as may be told at once.
func TestAllPassesTogetherReportABoundedNumberOfJobs(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	first, second := w.create("a"), w.create("b")
	w.pass(1)
	w.clock.Step(time.Minute)
	for range reportsBurst - 1 {
		if !w.reconciler.reports.TryAccept() {
			t.Fatal("the bound is less")
		}
	}
	result, err := w.tryPass()
	if err != nil {
		t.Fatal(err)
	}
	w.awaitAnnotations()
	if w.note(first) == "" || w.note(second) != "" || result.RequeueAfter != resyncPeriod {
		t.Fatalf("the notes are %q and %q; comes back in %s", w.note(first), w.note(second), result.RequeueAfter)
	}
	w.clock.Step(time.Second)
	w.pass(1)
	w.awaitAnnotations()
	if w.note(second) == "" || len(w.told()) != 2 {
		t.Error("the second Job is not told later")
	}
}

func TestTheAnnotationIsRemovedByTheStart(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	job := w.create("a")
	w.clock.Step(reportAfter)
	w.pass(2)
	w.awaitAnnotations()
	if w.note(job) == "" {
		t.Fatal("no note")
	}
	if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
		t.Fatal(err)
	}
	w.awaitContender()
	if !w.isRunning(job) || w.note(job) != "" {
		t.Errorf("of a Job that runs: %q", w.note(job))
	}
}

func TestAnnotationsThatCannotBeWritten(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused":          errPolicy,
		"in conflict":      apierrors.NewConflict(batchv1.Resource("jobs"), "", errPolicy),
		"of what has gone": apierrors.NewNotFound(batchv1.Resource("jobs"), ""),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.grantTo("alice")
			first := w.create("a")
			w.create("b")
			w.refuse = func(client.Object, bool) error { return refusal }
			w.clock.Step(reportAfter)
			w.pass(2)
			w.awaitAnnotations()
			w.refuse = nil
			if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
				t.Fatal(err)
			}
			w.awaitContender()
			if !w.isRunning(first) {
				t.Error("not started")
			}
		})
	}
}

func TestTheJobThatMayGetAFreeLockIsNotAnnotated(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.clock.Step(time.Minute)
	w.pass(1)
	w.awaitAnnotations()
	if note := w.note(job); note != "" {
		t.Errorf("annotated with %q", note)
	}
}

func TestTheJobThatIsStartedIsNotAnnotated(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.clock.Step(time.Minute)
	w.pass(3)
	w.awaitAnnotations()
	if note := w.note(job); note != "" {
		t.Errorf("annotated with %q", note)
	}
}

// The cache shows the Job as it was before its annotation.
func TestAStartInConflictWithAnAnnotationIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	job := w.create("a")
	w.freeze()
	w.clock.Step(reportAfter)
	w.pass(2)
	w.awaitAnnotations()
	if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
		t.Fatal(err)
	}
	w.awaitContender()
	if w.isRunning(job) {
		t.Fatal("written by what the cache showed")
	}
	w.shown = nil
	w.pass(1)
	if !w.isRunning(job) || w.note(job) != "" {
		t.Error("not started when the cache has caught up")
	}
}

func TestWaitingJobsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	w.create("a")
	w.create("b")
	w.create("c", annotated(v1alpha1.LockPausedAnnotation, "true"))
	w.pass(1)
	w.clock.Step(time.Minute)
	w.create("d")
	w.pass(1)
	want := exposition.Of(&metric.JobsOldestWait, `lock_operator_jobs_oldest_wait_seconds{namespace="default"} 60
`) + exposition.Of(&metric.JobsWaiting, `lock_operator_jobs_waiting{namespace="default"} 3
`)
	if err := testutil.CollectAndCompare(w.reconciler, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	w.leadership.loseGrant()
	if number := testutil.CollectAndCount(w.reconciler); number != 0 {
		t.Errorf("%d series without the leadership", number)
	}
}

// Until its pods have ended, whether it holds the lock or has lost it.
func TestRunningJobsAreCounted(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	wantRunning := func(when string, number int) {
		t.Helper()
		want := ""
		if number > 0 {
			want = exposition.Of(&metric.JobsRunning, fmt.Sprintf("lock_operator_jobs_running{namespace=\"default\"} %d\n", number))
		}
		if err := testutil.CollectAndCompare(w.reconciler, strings.NewReader(want), metric.JobsRunning.Name); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	w.grant(job)
	wantRunning("granted", 0)
	w.pass(1)
	if !w.isRunning(job) {
		t.Fatal("not started")
	}
	wantRunning("started", 1)
	next := w.create("b")
	w.pass(1)
	wantRunning("another one waits", 1)
	w.complete(job, true)
	w.pass(1)
	wantRunning("complete, with pods", 1)
	w.pods[job.UID] = false
	for range 3 {
		w.clock.Step(podsPeriod)
		w.pass(1)
		w.finalize(job)
	}
	// A goroutine waits for the lock of the next one.
	w.await("start of the next one", func() bool { w.pass(1); return w.isRunning(next) })
	wantRunning("only the next one", 1)
	w.pods[next.UID] = true
	if err := w.locks.ForceRelease(t.Context(), space, key, "stuck"); err != nil {
		t.Fatal(err)
	}
	w.pass(1)
	if w.isRunning(next) {
		t.Fatal("it runs on without the lock")
	}
	wantRunning("without the lock, with pods", 1)
	w.leadership.loseGrant()
	wantRunning("without the leadership", 0)
}

func TestTheOldestWaitOfANamespaceIsThatOfAllItsLocks(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	older, newer := jobCount{waiting: 2, oldest: now.Add(-time.Hour)}, jobCount{waiting: 1, oldest: now, running: 1}
	want := jobCount{waiting: 3, oldest: now.Add(-time.Hour), running: 1}
	for _, got := range []jobCount{older.plus(newer), newer.plus(older), jobCount{}.plus(older).plus(newer).plus(jobCount{})} {
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestAnAnnotationInConflictWithAChange(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	changed, paused := w.create("a"), w.create("b")
	w.pass(1)
	w.freeze()
	w.write(changed, annotated("example.com/other", "change"))
	w.write(paused, annotated(v1alpha1.LockPausedAnnotation, "true"))
	w.clock.Step(reportAfter)
	w.pass(1)
	w.awaitAnnotations()
	if w.note(changed) == "" {
		t.Error("not written")
	}
	if note := w.note(paused); note != "" {
		t.Errorf("a paused Job is annotated with %q", note)
	}
}
