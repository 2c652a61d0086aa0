package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// repeating is a proxy that sends every write but a delete twice and passes on the second answer, as some do when a connection
// breaks. A delete whose repetition finds nothing cannot be told from one that another call outran.
type repeating struct{ engine.Objects }

func (r repeating) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error) {
	_, _ = r.Objects.Create(ctx, object, options)
	return r.Objects.Create(ctx, object, options)
}

func (r repeating) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	_, _ = r.Objects.Update(ctx, object, options)
	return r.Objects.Update(ctx, object, options)
}

func TestWritesThatAProxyRepeats(t *testing.T) {
	for title, isAdmitted := range map[string]bool{"stamped by the engine": false, "stamped by admission": true} {
		bubbleOf(t, title, func(t *testing.T) {
			behind, records := newAdmitting(), &audittest.Recorder{}
			var objects engine.Objects = behind.etcd
			if isAdmitted {
				objects = behind
			}
			options := engine.Options{
				Objects:  func(string) engine.Objects { return repeating{objects} },
				Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: isAdmitted, ClockSkewAllowance: time.Second, Audit: records,
			}
			running, other := startWith(t, options), startWith(t, options)

			var owners []string
			for range 4 {
				owners = append(owners, lock.NewOwner())
			}
			acquire(t, running, by(owners[0]))
			renewed, err := running.Renew(t.Context(), "default", key, lock.Proof{Owner: owners[0]}, 0)
			if err != nil {
				t.Fatalf("renewal: %v", err)
			}
			answers := queued(t, running, waiting(owners[1], time.Hour))
			release(t, running, owners[0])
			token, err := renewed.FencingToken()
			if err != nil {
				t.Fatal(err)
			}
			wantNext(t, answers, owners[1], token)
			release(t, other, owners[1])

			acquire(t, running, by(owners[2]))
			pass(40 * time.Second)
			if taken := acquire(t, running, by(owners[3])); taken.Spec.Owner != owners[3] {
				t.Errorf("take-over: %v", taken)
			}
			if !isAdmitted { // Admission wants a reason first.
				if err := other.ForceRelease(t.Context(), "default", key, "stuck"); err != nil {
					t.Errorf("forced release: %v", err)
				}
				var got []string
				for _, record := range records.All() {
					got = append(got, string(record.Event)+"/"+string(record.Reason))
				}
				want := []string{
					"Granted/", "Renewed/", "Released/PassedOn", "HandedOn/", "Released/ByOwner",
					"Granted/", "Expired/Replaced", "TakenOver/", "ForceReleased/ByForce",
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("records (-want +got):\n%s", diff)
				}
			}
			passOrphanWindow()
		})
	}
}

// Callers may share an owner token, and two replicas may stamp the same microsecond.
func TestARepeatedCreateDoesNotTakeTheGrantOfARival(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, rival *engine.Engine) {
		running := startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return repeating{etcd} }, Informer: etcd, Limits: rules.DefaultLimits(),
		})
		acquire(t, rival, by("shared"))
		if _, err := running.Acquire(t.Context(), "default", by("shared")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		passOrphanWindow()
	})
}

// From the expiry until it may be taken over, a lock has no holder, whatever is asked.
func TestAnswersWithinTheSkewAllowance(t *testing.T) {
	bubble(t, func(t *testing.T, _ *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("late", 30*time.Second+400*time.Millisecond))
		pass(30*time.Second + 500*time.Millisecond)
		refused := map[string]error{"waiting": (<-answers).err}
		_, refused["acquire"] = engine.Acquire(t.Context(), "default", by("b"))
		for what, err := range refused {
			held, ok := errors.AsType[*lock.HeldError](err)
			if !ok || !held.IsExpired || held.Holder != "" || !held.ExpireTime.IsZero() {
				t.Errorf("%s: got %v, want that it has expired", what, err)
			}
		}
		if _, err := engine.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("get: %v, want ErrExpired", err)
		}
		if held, err := engine.List(t.Context(), "default", lock.Filter{}); err != nil || len(held) != 0 {
			t.Errorf("list: %v, %v", held, err)
		}
		if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("renew: %v, want ErrExpired", err)
		}
		pass(500 * time.Millisecond)
		acquire(t, engine, by("b"))
	})
}
