package jobgate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
)

var errInvalid = apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "a",
	field.ErrorList{field.TooLong(field.NewPath("spec", "template", "annotations"), "", 262144)})

// refuseStart has the API server refuse the start of the Job a.
func refuseStart(refusal error) func(client.Object, bool) error {
	return func(object client.Object, isStatus bool) error {
		job, isJob := object.(*batchv1.Job)
		if !isStatus && isJob && job.Name == "a" && !jobs.IsSuspended(job) {
			return refusal
		}
		return nil
	}
}

// next has the contender get the lock, and be started.
func (w *world) next() {
	w.t.Helper()
	w.pass(1)
	w.awaitContender()
}

func TestAJobThatIsInvalidWhenItIsStartedFails(t *testing.T) {
	for name, changes := range map[string][]change{"waits": nil, "does not wait": {skip}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stuck := w.create("a", changes...)
			w.create("b")
			w.grant(stuck)
			w.refuse = refuseStart(errInvalid)
			w.next()
			if !slices.Equal(w.starts, []string{"b"}) {
				t.Errorf("started %v, and %q holds the lock", w.starts, w.holder())
			}
			failed := slices.IndexFunc(w.read(stuck).Status.Conditions, func(condition batchv1.JobCondition) bool {
				return condition.Type == batchv1.JobFailureTarget && condition.Status == corev1.ConditionTrue &&
					condition.Reason == "LockStartRefused" && strings.Contains(condition.Message, "262144")
			})
			if failed < 0 {
				t.Errorf("its conditions are %v", w.read(stuck).Status.Conditions)
			}
			if said := strings.Join(w.told(), "\n"); strings.Count(said, "Warning LockStartRefused The Job cannot be started") != 1 {
				t.Errorf("told %q", said)
			}
		})
	}
}

func TestAJobWhoseStartIsForbiddenReleasesTheLockAndIsTriedAgain(t *testing.T) {
	for name, refusal := range map[string]error{"by a policy": errPolicy, "by a template that is immutable for a moment": errInvalid} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stuck := w.create("a", func(job *batchv1.Job) { job.Status.Active = 1 })
			other := w.create("b")
			w.grant(stuck)
			w.refuse = refuseStart(refusal)
			w.next()
			if !slices.Equal(w.starts, []string{"b"}) || jobs.PhaseOf(w.read(stuck)) != jobs.Waiting {
				t.Fatalf("started %v, and %q holds the lock", w.starts, w.holder())
			}
			w.awaitAnnotations()
			if note := w.note(stuck); !strings.HasPrefix(note, "refused at 2026-11-21T10:00:00Z, tried again after 2026-11-21T10:00:30Z: the Job cannot be started: ") {
				t.Errorf("the note is %q", note)
			}
			w.wantRefusal("start", map[bool]audit.Reason{true: audit.Forbidden, false: audit.Invalid}[apierrors.IsForbidden(refusal)])
			if said := strings.Join(w.told(), "\n"); strings.Count(said, "Warning LockStartRefused Leaves the lock to others for 30s") != 1 {
				t.Errorf("told %q", said)
			}
			w.refuse = nil
			w.complete(other, false)
			w.pass(2)
			if w.held() != nil {
				t.Fatalf("%q holds the lock", w.holder())
			}
			result, err := w.tryPass()
			if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > refusedStartBackoff {
				t.Fatalf("comes back in %s, %v", result.RequeueAfter, err)
			}
			w.clock.Step(refusedStartBackoff)
			w.next()
			if !w.isRunning(stuck) {
				t.Error("not tried again")
			}
		})
	}
}

// wantRefusal fails unless the one record is that the Job a was refused the operation.
func (w *world) wantRefusal(operation string, reason audit.Reason) {
	w.t.Helper()
	records := w.records.All()
	if len(records) != 1 {
		w.t.Fatalf("records are %+v, want one", records)
	}
	got := records[0]
	if got.Event != audit.Refused || got.Reason != reason || got.Via != audit.Controller || got.Operation != operation || got.Message == "" ||
		got.Namespace != space || got.Key != key.Bare() || got.Object == nil || *got.Object != (audit.Object{Group: "batch", Resource: "jobs", Name: "a"}) {
		w.t.Errorf("the record is %+v", got)
	}
}

func TestAJobWhoseLockTheClusterRefusesIsOnRecord(t *testing.T) {
	refused := func(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
		return nil, &lock.RefusedError{Reason: "exceeded quota"}
	}
	t.Run("does not wait", func(t *testing.T) {
		w := newWorld(t)
		w.create("a", skip)
		w.engine.acquire = refused
		w.wantError()
		w.wantRefusal("acquire", audit.Forbidden)
	})
	t.Run("waits", func(t *testing.T) {
		w := newWorld(t)
		w.create("a")
		w.engine.acquire = refused
		w.pass(1)
		w.awaitItem()
		w.wantError()
		w.wantRefusal("acquire", audit.Forbidden)
	})
}

func TestARefusalThatCannotBeRecordedBlocksNoOtherJob(t *testing.T) {
	w := newWorld(t)
	stuck := w.create("a")
	w.create("b")
	w.grant(stuck)
	w.refuse = func(job client.Object, isStatus bool) error {
		return errors.Join(refuseStart(errInvalid)(job, isStatus), refuseStatusOf("a")(job, isStatus))
	}
	w.wantError()
	w.awaitContender()
	if !slices.Equal(w.starts, []string{"b"}) {
		t.Errorf("started %v, and %q holds the lock", w.starts, w.holder())
	}
}

func TestAnOutageOfTheAPIServerIsNoRefusal(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.refuse = refuseStart(apierrors.NewInternalError(errors.New("etcd")))
	w.wantError()
	w.refuse = nil
	w.pass(1)
	if !w.isRunning(job) {
		t.Error("not started")
	}
}
