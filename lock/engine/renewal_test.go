package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

func TestRenewIsOneWrite(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquired := acquire(t, engine, by("a"))
		for range 3 {
			pass(10 * time.Second)
			renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if want := time.Now().Add(30 * time.Second); !renewed.Spec.ExpireTime.Time.Equal(want) {
				t.Errorf("expires at %v, want a whole ttl from now, %v", renewed.Spec.ExpireTime, want)
			}
			token, err := renewed.FencingToken()
			if want, _ := acquired.FencingToken(); err != nil || token != want {
				t.Errorf("token %d, %v; want that of the grant, %d", token, err, want)
			}
		}
		release(t, engine, "a")
		etcd.mustMake(t, "create", "update", "update", "update", "delete")
	})
}

func TestRenewalsKeepTheAnnotationsOfUsers(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.annotate("example.com/ticket", "4711")
		for range 2 {
			pass(10 * time.Second)
			renew(t, engine)
		}
		if diff := cmp.Diff(map[string]string{"example.com/ticket": "4711"}, etcd.annotations()); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		// The cache does not keep them, so each renewal reads them.
		etcd.mustMake(t, "create", "get", "update", "get", "update")
	})
}

func TestOnlyAManifestKeepsItsFieldManagers(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		renew := func(want ...string) {
			t.Helper()
			renew(t, engine)
			if diff := cmp.Diff(want, etcd.managers()); diff != "" {
				t.Errorf("managers (-want +got):\n%s", diff)
			}
		}
		acquire(t, engine, by("a"))
		renew()
		etcd.apply()
		renew("flux")
		renew("flux") // The cache, which keeps no record of managers, has seen the renewal before.
		answers := queued(t, engine, waiting("b", time.Hour))
		release(t, engine, "a")
		mustGet(t, answers)
		if managers := etcd.managers(); managers != nil {
			t.Errorf("the lock of the next holder is managed by %v", managers)
		}
		release(t, engine, "b")
	})
}

func TestRenewRefuses(t *testing.T) {
	cases := map[string]struct {
		owner string
		ttl   time.Duration
		after time.Duration
		want  error
	}{
		"another owner":             {owner: "b", want: lock.ErrOwnerMismatch},
		"what has expired":          {owner: "a", after: 30 * time.Second, want: lock.ErrExpired},
		"a ttl beyond the maximum":  {owner: "a", ttl: 25 * time.Hour, want: lock.ErrInvalid},
		"a ttl below a millisecond": {owner: "a", ttl: time.Microsecond, want: lock.ErrInvalid},
	}
	for title, test := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquired := acquire(t, engine, by("a"))
			pass(test.after)
			if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: test.owner}, test.ttl); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if version := etcd.version(name); version != acquired.ResourceVersion {
				t.Errorf("the lock was written: version %s after %s", version, acquired.ResourceVersion)
			}
			if made := etcd.made(); errors.Is(test.want, lock.ErrInvalid) && len(made) != 1 {
				t.Errorf("an invalid request was sent: %v", made)
			}
		})
	}
	bubbleOf(t, "what is not there", func(t *testing.T) {
		engine := start(t, newEtcd())
		if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
	})
}

// The door has judged the ttl, with the same limits.
func TestAnEngineForValidatedRequestsDoesNotValidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startWith(t, engine.Options{Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), IsValidated: true})
		request := by("a")
		request.TTL = 25 * time.Hour
		acquire(t, engine, request)
		renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 26*time.Hour)
		if err != nil || renewed.Spec.TTL.Duration != 26*time.Hour {
			t.Errorf("got %v, %v", renewed, err)
		}
	})
}

// Two renewals through two replicas in the same microsecond are still two.
func TestARenewalIsNotTakenForAnotherOfTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		first, second := start(t, etcd), start(t, etcd)
		acquire(t, first, by("a"))
		etcd.mute(true)
		pass(10 * time.Second)
		for of, ttl := range []time.Duration{time.Minute, 2 * time.Minute} {
			renewed, err := []*engine.Engine{second, first}[of].Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, ttl)
			if err != nil {
				t.Fatal(err)
			}
			if renewed.Spec.TTL.Duration != ttl {
				t.Errorf("a renewal for %v is one for %v", ttl, renewed.Spec.TTL.Duration)
			}
		}
	})
}

func TestRenewOfALockThatWasWritten(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquired := acquire(t, engine, by("a"))
		etcd.touch()
		renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := acquired.FencingToken()
		if token, err := renewed.FencingToken(); err != nil || token != want {
			t.Errorf("token %d, %v; want that of the grant, %d", token, err, want)
		}
	})
}

func TestARenewalWhoseAnswerIsLost(t *testing.T) {
	cases := map[string]struct {
		fault faults
		want  []string
	}{
		"though it happened":   {faults{after: once("update", errLostAnswer)}, []string{"update", "get"}},
		"and it did not":       {faults{before: once("update", errLostAnswer)}, []string{"update", "get", "update"}},
		"and a read fails too": {faults{after: once("update", errLostAnswer), before: once("get", errRefused)}, []string{"update", "get", "get"}},
	}
	for title, test := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquired := acquire(t, engine, by("a"))
			pass(10 * time.Second)
			etcd.inject(test.fault)
			etcd.made()
			renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := acquired.FencingToken()
			if token, err := renewed.FencingToken(); err != nil || token != want {
				t.Errorf("token %d, %v; want that of the grant, %d", token, err, want)
			}
			if diff := cmp.Diff(test.want, etcd.made()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			release(t, engine, "a")
		})
	}
}

// Others that write the lock all the time can keep an operation from its write until its time is over.
// Its caller may try again, as after a request that was not answered in time.
func TestOperationsThatLoseEveryRaceAreToBeTriedAgain(t *testing.T) {
	races := map[string]error{
		"conflict":  apierrors.NewConflict(v1alpha1.Resource("locks"), name, errors.New("changed")),
		"not found": apierrors.NewNotFound(v1alpha1.Resource("locks"), name),
	}
	operations := map[string]func(context.Context, *engine.Engine) error{
		"renew": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Renew(ctx, "default", key, lock.Proof{Owner: "a"}, 0)
			return err
		},
		"release": func(ctx context.Context, e *engine.Engine) error {
			return e.Release(ctx, "default", key, lock.Proof{Owner: "a"})
		},
		"force release": func(ctx context.Context, e *engine.Engine) error {
			return e.ForceRelease(ctx, "default", key, "stuck")
		},
	}
	for race, lost := range races {
		for title, operate := range operations {
			bubbleOf(t, title+", "+race, func(t *testing.T) {
				etcd := newEtcd()
				acquire(t, start(t, etcd), by("a"))
				another := start(t, etcd)
				pass(time.Second) // Or the lock looks as if the renewal had happened.
				etcd.inject(faults{before: func(verb string) error {
					if verb == "update" || verb == "delete" {
						return lost
					}
					return nil
				}})
				if err := operate(t.Context(), another); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				etcd.inject(faults{})
			})
		}
	}
}

func TestARenewalReadsTheLockIfTheInformerIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.mute(true)
		for range 2 {
			renew(t, engine)
		}
		etcd.mustMake(t, "create", "update", "get", "update")
	})
}

// The answer to a renewal may arrive after another holder got the lock.
func TestARenewalThatIsAnsweredLateForgetsNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.inject(faults{after: func(verb string) error {
			if verb == "update" {
				pass(time.Second)
			}
			return nil
		}})
		renewed := make(chan error)
		go func() {
			_, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
			renewed <- err
		}()
		synctest.Wait()
		release(t, engine, "a")
		acquire(t, engine, by("b"))
		if err := <-renewed; err != nil {
			t.Errorf("the renewal, which happened, returns %v", err)
		}
		etcd.made()
		release(t, engine, "b")
		etcd.mustMake(t, "delete")
	})
}

// Not even with a renewal every 9 to 11 s of a ttl of 30 s, and nothing else.
func TestRenewalsMakeNoReads(t *testing.T) {
	cases := map[string]struct {
		ttl        time.Duration
		isAdmitted bool
	}{
		"stamped by the engine":                   {ttl: 30 * time.Second},
		"stamped by admission":                    {ttl: 30 * time.Second, isAdmitted: true},
		"stamped by admission, with a long pause": {ttl: time.Hour, isAdmitted: true},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			behind, local := newAdmitting(), &steppedClock{}
			var objects engine.Objects = behind.etcd
			if test.isAdmitted {
				objects = behind
			}
			checked := servertime.New(local)
			engine := startWith(t, engine.Options{
				Objects:  func(string) engine.Objects { return answering{Objects: objects, local: local, clock: checked} },
				Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: test.isAdmitted, Clock: checked,
			})
			request := by("a")
			request.TTL = test.ttl
			acquire(t, engine, request)
			behind.made()
			for range 200 {
				pass(lock.RenewalPause(test.ttl, 0))
				renew(t, engine)
			}
			if made := behind.made(); !slices.Equal(made, slices.Repeat([]string{"update"}, 200)) {
				t.Errorf("200 renewals made %d requests: %v", len(made), made)
			}
		})
	}
}

// A clock that is ahead and stale must not make a program believe that its lock has expired.
func TestAnAdmittedRenewalByAStaleClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind, local := newAdmitting(), &steppedClock{}
		checked := servertime.New(local)
		engine := startWith(t, engine.Options{
			Objects:  func(string) engine.Objects { return answering{Objects: behind, local: local, clock: checked} },
			Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: true, Clock: checked,
		})
		acquire(t, engine, by("a"))
		local.offset.Add(int64(time.Hour))
		if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
			t.Error(err)
		}
	})
}

// By a clock that is behind, the holder relies on its lock beyond the expiry, until it has the answer. So what ends the grant waits
// for the allowance, as others do.
func TestALateRenewalEndsTheGrantWhenOthersMight(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquired := acquire(t, engine, by("a")) // ttl 30 s
		pass(29 * time.Second)
		var deleted time.Time
		etcd.inject(faults{before: func(verb string) error {
			switch verb {
			case "update":
				pass(1500 * time.Millisecond)
			case "delete":
				deleted = time.Now()
			}
			return nil
		}})
		if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
		if after := deleted.Sub(acquired.Spec.ExpireTime.Time); after != time.Second {
			t.Errorf("deleted %s after the expireTime, want the allowance of a second", after)
		}
	})
}

// A renewal may be stored after the expiry that it was judged before. By then others were told that the lock is free.
func TestARenewalStoredAfterTheExpiryDoesNotReviveTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquired := acquire(t, engine, by("a")) // ttl 30 s
		pass(29 * time.Second)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" {
				pass(4 * time.Second) // Less than the operation timeout of 5 s.
			}
			return nil
		}})
		renewed := make(chan error, 1)
		go func() {
			_, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
			renewed <- err
		}()
		pass(3 * time.Second) // 2 s after the expiry, and 1 s after the allowance.
		if _, err := engine.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrExpired) && !errors.Is(err, lock.ErrNotHeld) {
			t.Fatalf("Get: %v", err)
		}
		err := <-renewed
		etcd.inject(faults{})
		if held, getErr := engine.Get(t.Context(), "default", key); !errors.Is(getErr, lock.ErrNotHeld) {
			t.Errorf("expired at %v, and at %v: %v, %v", acquired.Spec.ExpireTime, time.Now(), held, getErr)
		}
		if !errors.Is(err, lock.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
	})
}

// Another replica renews for the caller, who has gone there, while the first renewal here is looked for.
func TestARenewalIsNotServedByOneThatItsProofIsNotFor(t *testing.T) {
	for name, test := range map[string]struct {
		limit func(proof *lock.Proof, granted *v1alpha1.Lock)
		next  string
		want  error
	}{
		"of a version":    {func(proof *lock.Proof, granted *v1alpha1.Lock) { proof.ResourceVersion = granted.ResourceVersion }, "", lock.ErrStale},
		"of a connection": {func(proof *lock.Proof, _ *v1alpha1.Lock) { proof.Connection = "first" }, "second", lock.ErrNotHeld},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			etcd := newEtcd()
			here, there := start(t, etcd), start(t, etcd)
			request := by("a")
			request.Connection = "first"
			granted := acquire(t, here, request)
			pass(10 * time.Second)
			updates := 0
			etcd.inject(faults{before: func(verb string) error {
				if verb != "update" {
					return nil
				}
				switch updates++; updates {
				case 1: // It does not arrive.
					return errLostAnswer
				case 2:
					pass(time.Millisecond)
					if _, err := there.Renew(t.Context(), "default", key, lock.Proof{Owner: "a", NextConnection: test.next}, 0); err != nil {
						t.Error(err)
					}
				}
				return nil
			}})
			proof := lock.Proof{Owner: "a"}
			test.limit(&proof, granted)
			if renewed, err := here.Renew(t.Context(), "default", key, proof, 0); !errors.Is(err, test.want) {
				t.Errorf("got %+v, %v; want %v", renewed, err, test.want)
			}
			etcd.inject(faults{})
			release(t, here, "a")
		})
	}
}
