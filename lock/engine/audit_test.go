package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// audited is an engine with its etcd and its audit records.
type audited struct {
	*engine.Engine
	t       *testing.T
	etcd    *etcd
	records *audittest.Recorder
}

func startAudited(t *testing.T) audited {
	t.Helper()
	etcd, records := newEtcd(), &audittest.Recorder{}
	engine := startWith(t, engine.Options{
		Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, Audit: records,
	})
	return audited{Engine: engine, t: t, etcd: etcd, records: records}
}

func (a audited) acquire(owner string, ttl time.Duration) { mustAcquire(a.t, a.Engine, owner, ttl) }

func (a audited) want(got, want error) {
	a.t.Helper()
	if !errors.Is(got, want) {
		a.t.Errorf("got %v, want %v", got, want)
	}
}

func (a audited) asCarol() context.Context { return lock.ContextWithUser(a.t.Context(), "carol") }

// errRepeated is the answer to a delete that a proxy repeats.
var errRepeated = apierrors.NewNotFound(v1alpha1.Resource("locks"), name)

// startSecondAudited returns another replica, with its records.
func startSecondAudited(on audited) (*engine.Engine, *audittest.Recorder) {
	records := &audittest.Recorder{}
	return startWith(on.t, engine.Options{
		Objects: on.etcd.locks, Informer: on.etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, Audit: records,
	}), records
}

func confirmedEnds(records []audit.Record) (count int) {
	for _, record := range records {
		if record.HeldSeconds != nil && !record.Unconfirmed {
			count++
		}
	}
	return count
}

// expireWithOwners leaves an expired lock that cannot carry the next grant.
func (a audited) expireWithOwners() {
	a.t.Helper()
	owned := mustAcquire(a.t, a.Engine, "a", time.Second)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
	owned.Spec.FencingToken = new(int64(1))
	_, err := a.etcd.Update(a.t.Context(), owned, metav1.UpdateOptions{})
	a.want(err, nil)
	pass(time.Minute)
}

// untime sets the held time of all records to zero, since it depends on the backoff.
func (a audited) untime() {
	for _, record := range a.records.All() {
		if record.HeldSeconds != nil {
			*record.HeldSeconds = 0
		}
	}
}

// thenOutage loses the answer to the first write of a verb and refuses all later requests.
func thenOutage(verb string) faults {
	return faults{after: once(verb, errLostAnswer), before: func(got string) error {
		if got == verb {
			return nil
		}
		return errRefused
	}}
}

// summary contains the event, its reason, the fencing token, the actor and the held time.
func summary(record audit.Record) string {
	text := string(record.Event)
	if record.Reason != "" {
		text += "/" + string(record.Reason)
	}
	text += fmt.Sprintf(" %d", record.FencingToken)
	if record.Actor != "" {
		text += " by " + record.Actor
	}
	if record.HeldSeconds != nil {
		text += fmt.Sprintf(" held %gs", *record.HeldSeconds)
	}
	if record.Unconfirmed {
		text += " unconfirmed"
	}
	if record.Message != "" {
		text += ": " + record.Message
	}
	return text
}

func TestAuditOfTheEngine(t *testing.T) {
	cases := map[string]struct {
		do   func(on audited)
		want []string
	}{
		"acquire, renew, release": {func(on audited) {
			on.acquire("a", 30*time.Second)
			pass(2 * time.Second)
			_, err := on.Renew(on.asCarol(), "default", key, lock.Proof{Owner: "a"}, 0)
			on.want(err, nil)
			pass(3 * time.Second)
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), nil)
		}, []string{"Granted 1 by alice", "Renewed 1 by carol", "Released/ByOwner 1 by carol held 5s"}},
		"a release through an engine that does not know the lock": {func(on audited) {
			mustAcquire(on.t, start(on.t, on.etcd), "a", 30*time.Second)
			pass(time.Second)
			release(on.t, on.Engine, "a")
		}, []string{"Released/ByOwner 1 held 1s"}},
		"a hand-off": {func(on audited) {
			on.acquire("a", 30*time.Second)
			answers := make(chan answer, 1)
			queueUp(on.t.Context(), on.t, on.Engine, waiting("b", time.Hour), answers)
			pass(time.Second)
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), nil)
			<-answers
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 by carol held 1s", "HandedOn 2 by alice"}},
		"a hand-off whose answer is lost": {func(on audited) {
			on.acquire("a", 30*time.Second)
			answers := make(chan answer, 1)
			queueUp(on.t.Context(), on.t, on.Engine, waiting("b", time.Hour), answers)
			on.etcd.inject(faults{after: once("update", errLostAnswer)})
			pass(time.Second)
			release(on.t, on.Engine, "a")
			<-answers
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 held 1s", "HandedOn 2 by alice"}},
		"a hand-off that lapses before its delivery": {func(on audited) {
			on.acquire("a", 30*time.Second)
			answers := make(chan answer, 1)
			queueUp(on.t.Context(), on.t, on.Engine, waiting("b", time.Hour), answers)
			on.etcd.inject(slowly("update"))
			pass(time.Second)
			release(on.t, on.Engine, "a")
			<-answers
		}, []string{
			"Granted 1 by alice", "Released/PassedOn 1 held 1s", "HandedOn 2 by alice", "Released/Abandoned 2 held 30s",
		}},
		"an acquire that lapses before its delivery": {func(on audited) {
			on.etcd.inject(slowly("create"))
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 30s"}},
		"an acquire that lapses, and the answer to its end is lost": {func(on audited) {
			slow := slowly("create")
			on.etcd.inject(faults{after: func(verb string) error {
				if verb == "delete" {
					on.etcd.inject(faults{})
					return errLostAnswer
				}
				return slow.after(verb)
			}})
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
			passOrphanWindow()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 30s unconfirmed"}},
		"a take-over": {func(on audited) {
			on.acquire("a", 10*time.Second)
			pass(time.Minute)
			on.acquire("b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Replaced 1 by alice held 10s", "TakenOver 2 by alice"}},
		"a take-over whose answer is lost": {func(on audited) {
			on.acquire("a", 10*time.Second)
			pass(time.Minute)
			on.etcd.inject(faults{after: once("update", errLostAnswer)})
			on.acquire("b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Replaced 1 by alice held 10s", "TakenOver 2 by alice"}},
		"a forced release": {func(on audited) {
			on.acquire("a", 30*time.Second)
			on.want(on.ForceRelease(on.asCarol(), "default", key, "stuck"), nil)
		}, []string{"Granted 1 by alice", "ForceReleased/ByForce 1 by carol held 0s: stuck"}},
		"an acquire whose answer is lost": {func(on audited) {
			on.etcd.inject(faults{after: once("create", errLostAnswer)})
			on.acquire("a", time.Minute)
		}, []string{"Granted 1 by alice"}},
		"an acquire that is lost on its way": {func(on audited) {
			on.etcd.inject(faults{before: once("create", errLostAnswer)})
			on.acquire("a", time.Minute)
		}, []string{"Granted 1 by alice"}},
		"an acquire of a lock that is held": {func(on audited) {
			mustAcquire(on.t, start(on.t, on.etcd), "a", time.Minute)
			_, err := on.Acquire(on.t.Context(), "default", by("b"))
			on.want(err, lock.ErrHeld)
		}, nil},
		"an acquire that is lost to a rival": {func(on audited) {
			rival := start(on.t, on.etcd)
			on.etcd.inject(faults{before: func(string) error {
				on.etcd.inject(faults{})
				mustAcquire(on.t, rival, "rival", time.Minute)
				return errLostAnswer
			}})
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrHeld)
			passOrphanWindow()
		}, nil},
		"an acquire of a caller that goes away": {func(on audited) {
			ctx, cancel := context.WithCancel(on.t.Context())
			resume := make(chan struct{})
			on.etcd.inject(faults{after: func(verb string) error {
				if verb == "create" {
					cancel()
					<-resume
				}
				return nil
			}})
			_, err := on.Acquire(ctx, "default", by("a"))
			on.want(err, context.Canceled)
			close(resume)
			synctest.Wait()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"an acquire without an answer": {func(on audited) {
			on.etcd.inject(thenOutage("create"))
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
			on.etcd.inject(faults{})
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"an acquire that comes in late": {func(on audited) {
			on.etcd.inject(faults{before: func(verb string) error {
				if verb == "create" {
					return errLostAnswer
				}
				return errRefused
			}})
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
			late := on.etcd.sent()
			on.etcd.inject(faults{})
			pass(2 * time.Second)
			_, err = on.etcd.Create(on.t.Context(), late, metav1.CreateOptions{})
			on.want(err, nil)
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"a release whose answer is lost": {func(on audited) {
			on.acquire("a", time.Minute)
			on.etcd.inject(faults{after: once("delete", errLostAnswer)})
			release(on.t, on.Engine, "a")
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 held 0s unconfirmed"}},
		"a release that is lost on its way": {func(on audited) {
			on.acquire("a", time.Minute)
			on.etcd.inject(faults{before: once("delete", errLostAnswer)})
			release(on.t, on.Engine, "a")
			on.untime()
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 held 0s"}},
		"a release that a proxy repeats": {func(on audited) {
			on.acquire("a", time.Minute)
			on.etcd.inject(faults{after: once("delete", errRepeated)})
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), lock.ErrNotHeld)
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 by carol held 0s unconfirmed"}},
		"a release after the watch has shown another one": {func(on audited) {
			on.acquire("a", time.Minute)
			release(on.t, start(on.t, on.etcd), "a")
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), lock.ErrNotHeld)
		}, []string{"Granted 1 by alice"}},
		"a release that another one outruns": {func(on audited) {
			other, otherRecords := startSecondAudited(on)
			mustAcquire(on.t, other, "a", time.Minute)
			on.etcd.inject(faults{before: func(verb string) error {
				if verb == "delete" {
					on.etcd.inject(faults{})
					release(on.t, other, "a")
				}
				return nil
			}})
			on.want(on.Release(on.t.Context(), "default", key, lock.Proof{Owner: "a"}), lock.ErrNotHeld)
			if confirmed := confirmedEnds(otherRecords.All()); confirmed != 1 {
				on.t.Errorf("%d records confirm the end", confirmed)
			}
		}, nil},
		"an acquire that lapses, whose end a proxy repeats": {func(on audited) {
			slow := slowly("create")
			on.etcd.inject(faults{after: func(verb string) error {
				if verb == "delete" {
					return errRepeated
				}
				return slow.after(verb)
			}})
			_, err := on.Acquire(on.t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
			passOrphanWindow()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 30s unconfirmed"}},
		"a reclaim": {func(on audited) {
			on.expireWithOwners()
			on.acquire("b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Reaped 1 held 1s", "Granted 4 by alice"}},
		"a reclaim that a proxy repeats": {func(on audited) {
			on.expireWithOwners()
			on.etcd.inject(faults{after: once("delete", errRepeated)})
			on.acquire("b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Reaped 1 held 1s unconfirmed", "Granted 4 by alice"}},
		"a reclaim whose answer is lost": {func(on audited) {
			on.expireWithOwners()
			on.etcd.inject(faults{after: once("delete", errLostAnswer)})
			_, err := on.Acquire(on.t.Context(), "default", by("b"))
			on.want(err, lock.ErrUnavailable)
			passOrphanWindow()
		}, []string{"Granted 1 by alice", "Expired/Reaped 1 held 1s unconfirmed"}},
		"a reclaim that is lost on its way": {func(on audited) {
			on.expireWithOwners()
			on.etcd.inject(faults{before: once("delete", errLostAnswer)})
			_, err := on.Acquire(on.t.Context(), "default", by("b"))
			on.want(err, lock.ErrUnavailable)
			passOrphanWindow()
		}, []string{"Granted 1 by alice", "Expired/Reaped 1 held 1s"}},
		"a waiter that left, whose grant a proxy ends twice": {func(on audited) {
			on.acquire("a", time.Minute)
			ctx, cancel := context.WithCancel(on.t.Context())
			answers := make(chan answer, 1)
			queueUp(ctx, on.t, on.Engine, waiting("b", time.Hour), answers)
			on.etcd.inject(faults{after: func(verb string) error {
				switch verb {
				case "update":
					cancel()
					<-answers
				case "delete":
					return errRepeated
				}
				return nil
			}})
			release(on.t, on.Engine, "a")
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 held 0s", "HandedOn 2 by alice", "Released/Abandoned 2 held 0s unconfirmed"}},
		"a release whose answer an outage keeps": {func(on audited) {
			on.acquire("a", time.Hour)
			on.etcd.inject(thenOutage("delete"))
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), lock.ErrUnavailable)
			on.etcd.inject(faults{})
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 by carol held 0s unconfirmed"}},
		"a hand-off whose answer an outage keeps": {func(on audited) {
			on.acquire("a", time.Hour)
			answers := make(chan answer, 1)
			queueUp(on.t.Context(), on.t, on.Engine, waiting("b", 2*time.Second), answers)
			on.etcd.inject(thenOutage("update"))
			on.want(on.Release(on.asCarol(), "default", key, lock.Proof{Owner: "a"}), lock.ErrUnavailable)
			on.want((<-answers).err, lock.ErrUnavailable)
			on.etcd.inject(faults{})
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 by carol held 0s", "HandedOn 2 by alice", "Released/Abandoned 2 held 0s"}},
		"a grant that is ended in an outage": {func(on audited) {
			ctx, cancel := context.WithCancel(on.t.Context())
			on.etcd.inject(faults{after: func(verb string) error {
				switch verb {
				case "create":
					cancel()
				case "delete":
					on.etcd.inject(faults{before: always(errRefused)})
					return errLostAnswer
				}
				return nil
			}})
			_, err := on.Acquire(ctx, "default", by("a"))
			on.want(err, context.Canceled)
			pass(10 * time.Second)
			on.etcd.inject(faults{})
			passOrphanWindow()
			on.untime()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s unconfirmed"}},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			on := startAudited(t)
			test.do(on)
			var got []string
			for _, record := range on.records.All() {
				got = append(got, summary(record))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// A grant that was stamped by a wrong clock is deleted.
func TestAuditOfAGrantThatIsRevoked(t *testing.T) {
	for title, test := range map[string]struct {
		answer error
		want   string
	}{
		"answered":             {want: "Released/Abandoned 1 held 0s"},
		"repeated by a proxy":  {answer: errRepeated, want: "Released/Abandoned 1 held 0s unconfirmed"},
		"whose answer is lost": {answer: errLostAnswer, want: "Released/Abandoned 1 held 0s unconfirmed"},
	} {
		bubbleOf(t, title, func(t *testing.T) {
			etcd, local, records := newEtcd(), &steppedClock{}, &audittest.Recorder{}
			local.offset.Store(int64(-10 * time.Second))
			checked := servertime.New(local)
			on := audited{t: t, etcd: etcd, records: records, Engine: startWith(t, engine.Options{
				Objects:  func(string) engine.Objects { return answering{Objects: etcd, local: local, clock: checked} },
				Informer: etcd, Limits: rules.DefaultLimits(), Clock: checked, Audit: records,
			})}
			etcd.inject(faults{after: once("delete", test.answer)})
			_, err := on.Acquire(t.Context(), "default", by("a"))
			on.want(err, lock.ErrUnavailable)
			passOrphanWindow()
			on.untime()
			var got []string
			for _, record := range records.All() {
				if record.FencingToken == 1 && record.HeldSeconds != nil {
					got = append(got, summary(record))
				}
			}
			if diff := cmp.Diff([]string{test.want}, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditContainsNoOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := lock.NewOwner()
		on := startAudited(t)
		mustAcquire(t, on.Engine, secret, time.Minute)
		release(t, on.Engine, secret)
		for _, record := range on.records.All() {
			line, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(line), secret) || strings.Contains(fmt.Sprintf("%+v", record), secret) {
				t.Errorf("the owner token is in %s", line)
			}
			if record.OwnerHash != lock.Fingerprint(secret) {
				t.Errorf("the owner's hash is %q, want that of the SDK, %q", record.OwnerHash, lock.Fingerprint(secret))
			}
		}
	})
}

// Admission records the writes of an engine that pass it.
func TestAdmittedEngineRecordsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, behind := &audittest.Recorder{}, newAdmitting()
		engine := startWith(t, engine.Options{
			Objects:  func(string) engine.Objects { return behind },
			Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: true, Audit: records,
		})
		mustAcquire(t, engine, "a", time.Minute)
		release(t, engine, "a")
		if got := records.All(); len(got) != 0 {
			t.Errorf("recorded %v", got)
		}
	})
}
