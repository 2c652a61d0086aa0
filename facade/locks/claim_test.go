package locks_test

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/rules"
)

func newLocks(t *testing.T, backend lock.Backend) (*locks.Locks, *access.Caller) {
	t.Helper()
	l, err := locks.New(locks.Options{Backend: backend, Limits: rules.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	return l, &access.Caller{User: &user.DefaultInfo{Name: "alice"}, Namespace: "default"}
}

var aMinute = lock.Request{Acquisition: rules.Acquisition{Key: "k", TTL: time.Minute}}

// acquireBy acquires a lock that the secret proves.
func acquireBy(t *testing.T, l *locks.Locks, caller *access.Caller, secret locktoken.Secret) (locks.Acquisition, *v1alpha1.Lock) {
	t.Helper()
	acquisition, err := l.PrepareSecret(caller, aMinute, secret, false)
	if err != nil {
		t.Fatal(err)
	}
	granted, err := acquisition.Acquire(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	return acquisition, granted
}

// Only a secret proves a lock that stores its hash; the hash itself proves nothing at any door.
func TestTheHashOfASecretProvesNothing(t *testing.T) {
	for name, secret := range map[string]locktoken.Secret{"random": locktoken.NewSecret(), "derived": locktoken.DeriveSecret("a")} {
		t.Run(name, func(t *testing.T) {
			l, caller := newLocks(t, locktest.New())
			_, granted := acquireBy(t, l, caller, secret)
			owner := granted.Spec.Owner
			if !locks.IsOwner(secret, owner) || locks.IsOwner(locktoken.NewSecret(), owner) {
				t.Errorf("the owner is %s", owner)
			}
			for _, claim := range []locks.Claim{locks.OwnerClaim(owner), {}, locks.TokenClaim(locktoken.Token{Secret: locktoken.NewSecret(), FencingToken: 1})} {
				if err := l.Release(t.Context(), caller, "lock:k", claim); !errors.Is(err, lock.ErrOwnerMismatch) {
					t.Errorf("got %v, want ErrOwnerMismatch", err)
				}
			}
			again := aMinute
			again.Owner = owner
			if _, err := l.Prepare(caller, again, false); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("an acquisition with the hash: %v, want ErrInvalid", err)
			}
			if name == "derived" { // A random secret has no other grant.
				if err := l.Release(t.Context(), caller, "lock:k", locks.TokenClaim(locktoken.Token{Secret: secret, FencingToken: 2})); !errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("another grant: %v, want ErrNotHeld", err)
				}
			}
			if err := l.Release(t.Context(), caller, "lock:k", locks.TokenClaim(locktoken.Token{Secret: secret, FencingToken: 1}).WithVersion("7")); !errors.Is(err, lock.ErrStale) {
				t.Errorf("another version: %v, want ErrStale", err)
			}
			if err := l.Release(t.Context(), caller, "lock:k", locks.TokenClaim(locktoken.Token{Secret: secret, FencingToken: 1}).WithVersion("1")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A write past admission moves the number of a grant on. The random secret of the grant still proves it; of a
// derived one it could be the next grant.
func TestAClaimToAGrantWhoseNumberHasMovedOn(t *testing.T) {
	for name, test := range map[string]struct {
		secret locktoken.Secret
		want   error
	}{
		"random":  {locktoken.NewSecret(), nil},
		"derived": {locktoken.DeriveSecret("a"), lock.ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			l, caller := newLocks(t, locktest.New())
			_, granted := acquireBy(t, l, caller, test.secret)
			fencing, err := granted.FencingToken()
			if err != nil {
				t.Fatal(err)
			}
			right, moved := locktoken.Token{Secret: test.secret, FencingToken: fencing}, locktoken.Token{Secret: test.secret, FencingToken: fencing + 1}
			if got := locks.IsOfGrant(moved, granted); got != (test.want == nil) || !locks.IsOfGrant(right, granted) {
				t.Errorf("is of the grant: %t", got)
			}
			if err := l.Release(t.Context(), caller, "lock:k", locks.TokenClaim(moved)); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// A repeated acquisition has the same owner token: what is taken back is the grant, not the next one.
func TestOnlyTheGrantIsTakenBack(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	memory := locktest.New(locktest.WithClock(clock))
	l, caller := newLocks(t, memory)
	acquisition, first := acquireBy(t, l, caller, locktoken.DeriveSecret("a"))
	clock.Step(time.Hour)
	if _, err := acquisition.Acquire(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	l.TakeBack(t.Context(), "f", caller, first)
	if len(memory.All()) != 1 {
		t.Error("the next grant was taken back")
	}
}
