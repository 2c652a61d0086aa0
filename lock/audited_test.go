package lock_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
)

// audited is an engine on an etcd, and what it recorded.
type audited struct {
	*lock.Engine
	etcd    *etcd
	records *audittest.Recorder
}

func startAudited(t *testing.T) audited {
	t.Helper()
	etcd, records := newEtcd(), &audittest.Recorder{}
	engine := startWith(t, lock.Options{
		Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, Audit: records,
	})
	return audited{Engine: engine, etcd: etcd, records: records}
}

// summary tells an event, its reason, the fencing token, by whom and after how long.
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
	return text
}

func TestAuditOfTheEngine(t *testing.T) {
	carol := func(t *testing.T) context.Context {
		t.Helper()
		return lock.ContextWithUser(t.Context(), "carol")
	}
	lostAll := faults{after: once("create", errLostAnswer), before: func(verb string) error {
		if verb == "create" {
			return nil
		}
		return errRefused
	}}
	cases := map[string]struct {
		do   func(t *testing.T, on audited)
		want []string
	}{
		"acquire, renew, release": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 30*time.Second)
			pass(2 * time.Second)
			if _, err := on.Renew(carol(t), "default", key, "a", 0); err != nil {
				t.Fatal(err)
			}
			pass(3 * time.Second)
			if err := on.Release(carol(t), "default", key, "a"); err != nil {
				t.Fatal(err)
			}
		}, []string{"Granted 1 by alice", "Renewed 1 by carol", "Released/ByOwner 1 by carol held 5s"}},
		"a release through an engine that does not know the lock": {func(t *testing.T, on audited) {
			mustAcquire(t, start(t, on.etcd), "a", 30*time.Second)
			pass(time.Second)
			release(t, on.Engine, "a")
		}, []string{"Released/ByOwner 1 held 1s"}},
		"a hand-off": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 30*time.Second)
			answers := make(chan answer, 1)
			queueUp(t.Context(), t, on.Engine, waiting("b", time.Hour), answers)
			pass(time.Second)
			if err := on.Release(carol(t), "default", key, "a"); err != nil {
				t.Fatal(err)
			}
			<-answers
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 by carol held 1s", "HandedOn 2 by alice"}},
		"a hand-off whose answer is lost": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 30*time.Second)
			answers := make(chan answer, 1)
			queueUp(t.Context(), t, on.Engine, waiting("b", time.Hour), answers)
			on.etcd.inject(faults{after: once("update", errLostAnswer)})
			pass(time.Second)
			release(t, on.Engine, "a")
			<-answers
		}, []string{"Granted 1 by alice", "Released/PassedOn 1 held 1s", "HandedOn 2 by alice"}},
		"a take-over": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 10*time.Second)
			pass(time.Minute)
			mustAcquire(t, on.Engine, "b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Replaced 1 by alice held 10s", "TakenOver 2 by alice"}},
		"a take-over whose answer is lost": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 10*time.Second)
			pass(time.Minute)
			on.etcd.inject(faults{after: once("update", errLostAnswer)})
			mustAcquire(t, on.Engine, "b", time.Minute)
		}, []string{"Granted 1 by alice", "Expired/Replaced 1 by alice held 10s", "TakenOver 2 by alice"}},
		"a forced release": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", 30*time.Second)
			if err := on.ForceRelease(carol(t), "default", key, "stuck"); err != nil {
				t.Fatal(err)
			}
			if got := on.records.All()[1].Message; got != "stuck" {
				t.Errorf("the reason is %q, want stuck", got)
			}
		}, []string{"Granted 1 by alice", "ForceReleased/ByForce 1 by carol held 0s"}},
		"an acquire whose answer is lost": {func(t *testing.T, on audited) {
			on.etcd.inject(faults{after: once("create", errLostAnswer)})
			mustAcquire(t, on.Engine, "a", time.Minute)
		}, []string{"Granted 1 by alice"}},
		"an acquire that is lost on its way": {func(t *testing.T, on audited) {
			on.etcd.inject(faults{before: once("create", errLostAnswer)})
			mustAcquire(t, on.Engine, "a", time.Minute)
		}, []string{"Granted 1 by alice"}},
		"an acquire of a lock that is held": {func(t *testing.T, on audited) {
			mustAcquire(t, start(t, on.etcd), "a", time.Minute)
			if _, err := on.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("got %v, want ErrHeld", err)
			}
		}, nil},
		"an acquire that is lost to a rival": {func(t *testing.T, on audited) {
			rival := start(t, on.etcd)
			on.etcd.inject(faults{before: func(string) error {
				on.etcd.inject(faults{})
				mustAcquire(t, rival, "rival", time.Minute)
				return errLostAnswer
			}})
			if _, err := on.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("got %v, want ErrHeld", err)
			}
			settled()
		}, nil},
		"an acquire of a caller that goes away": {func(t *testing.T, on audited) {
			ctx, cancel := context.WithCancel(t.Context())
			resume := make(chan struct{})
			on.etcd.inject(faults{after: func(verb string) error {
				if verb == "create" {
					cancel()
					<-resume
				}
				return nil
			}})
			if _, err := on.Acquire(ctx, "default", by("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			close(resume)
			synctest.Wait()
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"an acquire that nobody learns of": {func(t *testing.T, on audited) {
			on.etcd.inject(lostAll)
			if _, err := on.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			on.etcd.inject(faults{})
			settled()
			if len(on.records.All()) != 2 {
				t.Fatalf("%d records", len(on.records.All()))
			}
			*on.records.All()[1].HeldSeconds = 0 // How long it took depends on the backoff.
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"an acquire that comes in late": {func(t *testing.T, on audited) {
			on.etcd.inject(outage("create"))
			if _, err := on.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
			late := on.etcd.sent()
			on.etcd.inject(faults{})
			pass(2 * time.Second)
			if _, err := on.etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			settled()
			*on.records.All()[1].HeldSeconds = 0
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s"}},
		"a release whose answer is lost": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", time.Minute)
			on.etcd.inject(faults{after: once("delete", errLostAnswer)})
			release(t, on.Engine, "a")
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 held 0s unconfirmed"}},
		"a release that is lost on its way": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", time.Minute)
			on.etcd.inject(faults{before: once("delete", errLostAnswer)})
			release(t, on.Engine, "a")
			*on.records.All()[1].HeldSeconds = 0
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 held 0s"}},
		"a release whose answer an outage keeps": {func(t *testing.T, on audited) {
			mustAcquire(t, on.Engine, "a", time.Hour)
			on.etcd.inject(faults{after: once("delete", errLostAnswer), before: func(verb string) error {
				if verb == "delete" {
					return nil
				}
				return errRefused
			}})
			if err := on.Release(carol(t), "default", key, "a"); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			on.etcd.inject(faults{})
			settled()
			*on.records.All()[1].HeldSeconds = 0
		}, []string{"Granted 1 by alice", "Released/ByOwner 1 by carol held 0s unconfirmed"}},
		"a grant that is ended in an outage": {func(t *testing.T, on audited) {
			ctx, cancel := context.WithCancel(t.Context())
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
			if _, err := on.Acquire(ctx, "default", by("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			pass(10 * time.Second)
			on.etcd.inject(faults{})
			settled()
			*on.records.All()[1].HeldSeconds = 0
		}, []string{"Granted 1 by alice", "Released/Abandoned 1 held 0s unconfirmed"}},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on := startAudited(t)
				test.do(t, on)
				var got []string
				for _, record := range on.records.All() {
					got = append(got, summary(record))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("records (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAuditNeverTellsAnOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "550e8400-e29b-41d4-a716-446655440000"
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

// What an engine writes that passes admission is recorded there.
func TestAdmittedEngineRecordsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, behind := &audittest.Recorder{}, newAdmitting()
		engine := startWith(t, lock.Options{
			Objects:  func(string) lock.Objects { return behind },
			Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: true, Audit: records,
		})
		mustAcquire(t, engine, "a", time.Minute)
		release(t, engine, "a")
		if got := records.All(); len(got) != 0 {
			t.Errorf("recorded %v", got)
		}
	})
}
