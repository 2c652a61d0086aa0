package jobgate

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/observe"
)

var (
	errPolicy = apierrors.NewForbidden(batchv1.Resource("jobs"), "", errors.New("a policy of the cluster"))
	skip      = annotated(v1alpha1.LockPolicyAnnotation, "skip")
)

// refuseStatusOf has a policy refuse the status of one Job.
func refuseStatusOf(name string) func(client.Object, bool) error {
	return func(job client.Object, isStatus bool) error {
		if isStatus && job.GetName() == name {
			return errPolicy
		}
		return nil
	}
}

func TestOneJobAfterTheOther(t *testing.T) {
	w := newWorld(t)
	first, second := w.create("a"), w.create("b")
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(first) || w.isRunning(second) || w.holder() != "a" {
		t.Fatalf("started %v, and %q holds the lock", w.starts, w.holder())
	}
	w.pass(1)
	w.awaitWaiters(1)
	w.complete(first, false)
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(second) || w.holder() != "b" {
		t.Errorf("started %v, and %q holds the lock", w.starts, w.holder())
	}
	w.complete(second, false)
	w.pass(1)
	if w.held() != nil {
		t.Error("the lock outlives the Jobs")
	}
	if diff := cmp.Diff(map[observe.Acquired]int{observe.Granted: 2}, w.acquired); diff != "" {
		t.Errorf("requests for locks (-want +got):\n%s", diff)
	}
}

func TestAJobThatCannotBeEndedBlocksNoOtherJob(t *testing.T) {
	for name, stuck := range map[string]change{"refused by its policy": skip, "overdue": annotated(v1alpha1.LockWaitTimeoutAnnotation, "1s")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.grantTo("alice")
			w.create("a", stuck)
			skipped := w.create("b", skip)
			w.create("c")
			w.clock.Step(2 * time.Second)
			w.refuse = refuseStatusOf("a")
			w.wantError()
			w.awaitWaiters(1)
			if !jobs.IsDecided(w.read(skipped)) {
				t.Error("the next Job is left undecided")
			}
			if waiter := w.reconciler.state(theLock).waiter; waiter.job != "c" {
				t.Errorf("%s contends", waiter.job)
			}
		})
	}
}

func TestAJobThatCannotBeStoppedKeepsOthersFromTheStartOnly(t *testing.T) {
	w := newWorld(t)
	runs := w.create("a", running)
	waits := w.create("b")
	w.refuse = func(job client.Object, _ bool) error {
		if job.GetName() == "a" {
			return errPolicy
		}
		return nil
	}
	w.wantError()
	w.awaitItem()
	w.wantError()
	if w.holder() != "b" || w.isRunning(waits) {
		t.Fatalf("%q holds the lock, started %v", w.holder(), w.starts)
	}
	w.refuse = nil
	w.pass(1)
	if w.isRunning(runs) || w.isRunning(waits) {
		t.Error("runs while another Job may have pods")
	}
}

func TestAStatusConflictIsResolvedByAnotherPass(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	job := w.create("a", skip)
	conflicts := 1
	w.refuse = func(object client.Object, isStatus bool) error {
		if isStatus && conflicts > 0 {
			conflicts--
			return apierrors.NewConflict(batchv1.Resource("jobs"), object.GetName(), errors.New("changed"))
		}
		return nil
	}
	w.pass(1)
	if jobs.IsDecided(w.read(job)) || w.reconciler.state(theLock).withoutPods[job.UID] {
		t.Fatal("decided in spite of the conflict")
	}
	w.pass(1)
	if !jobs.IsDecided(w.read(job)) {
		t.Error("left undecided")
	}
}

func TestBlockedByPodsOfAnotherJob(t *testing.T) {
	cases := map[string]struct {
		state change
		// isOver has the Job controller do what it is waited for.
		isOver change
	}{
		"that was suspended": {stopping, func(job *batchv1.Job) { job.Status.Ready = new(int32(0)) }},
		"that has failed": {
			func(job *batchv1.Job) { running(job); condition(batchv1.JobFailureTarget)(job) },
			condition(batchv1.JobFailed),
		},
		"that is complete": {func(job *batchv1.Job) { running(job); condition(batchv1.JobComplete)(job) }, func(*batchv1.Job) {}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			other := w.create("a", test.state)
			w.pods[other.UID] = true
			waits := w.create("b")
			w.grant(waits)
			for range 3 {
				w.pass(1)
				w.clock.Step(podsPeriod)
			}
			w.write(other, test.isOver)
			for range 3 {
				w.pass(1)
				w.clock.Step(podsPeriod)
			}
			if w.isRunning(waits) {
				t.Fatal("started while a pod of another Job runs")
			}
			w.pods[other.UID] = false
			w.pass(2)
			if !w.isRunning(waits) {
				t.Error("not started when the pods have ended")
			}
		})
	}
}

func TestGrantAtTheLastMomentOfACancelledWait(t *testing.T) {
	w := newWorld(t)
	overdue := w.create("a", annotated(v1alpha1.LockWaitTimeoutAnnotation, "1m"))
	w.engine.acquire = w.acquireWhenCancelled
	w.pass(1)
	w.clock.Step(time.Minute)
	w.pass(1)
	if jobs.IsDecided(w.read(overdue)) {
		t.Fatal("timed out while it holds the lock")
	}
	w.pass(1)
	if !w.isRunning(overdue) || w.holder() != "a" {
		t.Error("the grant is lost")
	}
}

func TestTheQueueMovesOnWhenItsHeadIsPaused(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	head := w.create("a")
	w.create("b")
	w.pass(1)
	w.awaitWaiters(1)
	w.write(head, annotated(v1alpha1.LockPausedAnnotation, "true"))
	w.pass(1)
	w.awaitWaiters(1)
	if waiter := w.reconciler.state(theLock).waiter; waiter.job != "b" {
		t.Errorf("%s contends", waiter.job)
	}
}

func TestNothingIsWrittenTwiceWhileTheCacheIsBehind(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.freeze()
	w.pass(1)
	writes := 0
	w.refuse = func(client.Object, bool) error { writes++; return nil }
	w.pass(3)
	if writes > 0 || !slices.Equal(w.starts, []string{"a"}) {
		t.Errorf("%d writes more, starts %v", writes, w.starts)
	}
}

// A Job without its lock, and one that was granted it: whichever comes first, one pass
// starts only the latter, and not before the former has no pods.
func TestAPassStartsOneJobAtMost(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.create(name)
	}
	w.create("d", skip)
	w.pass(1)
	for range 5 {
		before := len(w.starts)
		w.pass(1)
		if len(w.starts) > before+1 {
			t.Fatalf("one pass started %v", w.starts[before:])
		}
		w.clock.Step(time.Second)
	}
	w.awaitItem()
	w.pass(2)
	if len(w.starts) != 1 {
		t.Errorf("started %v", w.starts)
	}
}

func TestAdoptsAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	granted := w.create("b")
	held := w.grant(granted)
	w.pass(1)
	if !slices.Equal(w.starts, []string{"b"}) {
		t.Fatalf("started %v", w.starts)
	}
	token, err := held.FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	if got := w.read(granted).Spec.Template.Annotations[v1alpha1.FencingTokenAnnotation]; got != itoa(token) {
		t.Errorf("the token is %s, want %d", got, token)
	}
	// And again, while it runs.
	w.start()
	w.pass(2)
	if w.holder() != "b" || !w.isRunning(granted) || len(w.starts) != 1 {
		t.Errorf("%q holds the lock, started %v", w.holder(), w.starts)
	}
}

func TestReleasesWhenALiveListShowsNoPod(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.pass(1)
	// The Job controller has not yet seen the pod that it created last.
	w.write(job, condition(batchv1.JobSuccessCriteriaMet))
	w.pods[job.UID] = false
	w.pass(1)
	if w.holder() != "a" {
		t.Fatal("released before the Job controller was done")
	}
	w.complete(job, true)
	for range 3 {
		w.pass(1)
		w.finalize(job)
		w.clock.Step(podsPeriod)
	}
	if w.holder() != "a" || len(w.read(job).Finalizers) == 0 {
		t.Fatal("released while a pod runs")
	}
	w.pods[job.UID] = false
	w.pass(1)
	w.finalize(job)
	if w.held() != nil || len(w.read(job).Finalizers) > 0 {
		t.Error("not released when the pod has ended")
	}
}

func TestAHolderWithoutItsLabel(t *testing.T) {
	unlabelled := func(job *batchv1.Job) { job.Labels = nil }
	cases := map[string]struct {
		changes []change
		hasPods bool
		// isReleased says whether the lock is; isKept whether the finalizer stays.
		isReleased, isKept bool
	}{
		"runs":                                  {[]change{running}, true, false, true},
		"has no pod now":                        {[]change{running}, false, false, true},
		"is complete, with a pod":               {[]change{running, condition(batchv1.JobComplete)}, true, false, true},
		"is complete":                           {[]change{running, condition(batchv1.JobComplete)}, false, true, false},
		"is about to be complete":               {[]change{running, condition(batchv1.JobSuccessCriteriaMet)}, false, false, true},
		"was not started":                       {nil, false, true, false},
		"was suspended, and the answer is open": {[]change{stopping}, false, false, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			job := w.create("a", append(test.changes, unlabelled)...)
			w.pods[job.UID] = test.hasPods
			w.grant(job)
			for range 3 {
				w.pass(1)
				w.clock.Step(podsPeriod)
			}
			if isReleased := w.held() == nil; isReleased != test.isReleased {
				t.Errorf("released: %v", isReleased)
			}
			if isKept := len(w.read(job).Finalizers) > 0; isKept != test.isKept {
				t.Errorf("finalizer kept: %v", isKept)
			}
		})
	}
}

func TestASuspendedHolderWithoutItsLabel(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", stopping, func(job *batchv1.Job) { job.Labels = nil })
	w.grant(job)
	w.pass(1)
	if w.read(job).Status.Ready != nil {
		t.Fatal("the Job controller is not asked")
	}
	w.write(job, func(job *batchv1.Job) { job.Status.Ready = new(int32(0)) })
	w.pass(1)
	if w.held() != nil {
		t.Error("not released when the Job controller has answered")
	}
}

func TestAHolderThatIsGone(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", running, func(job *batchv1.Job) { job.Finalizers = nil })
	w.grant(job)
	w.pods[job.UID] = true
	if err := w.cluster.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.pass(1)
	if w.held() == nil {
		t.Fatal("released while a pod runs")
	}
	w.pods[job.UID] = false
	w.reading = errors.New("the API server is away")
	w.wantError()
	if w.held() == nil {
		t.Fatal("released after a read that failed")
	}
	w.reading = nil
	w.pass(1)
	if w.held() != nil {
		t.Error("not released")
	}
}
