package lock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

func TestGetReturnsTheHolderOfTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default", lock.WithOwner("secret"), lock.WithReason("monthly close"))
		if _, err := client.Get(t.Context(), "billing:report"); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("of a free lock: got %v, want ErrNotHeld", err)
		}
		defer mustRelease(t, mustHold(t, client))
		got, err := client.Get(t.Context(), "billing:report")
		if err != nil {
			t.Fatal(err)
		}
		want := lock.Info{
			// The first 24 digits of what sha256sum says.
			Key: "0286042c08ba724b0518246d", Owner: "2bb80d537b1da3e38bd30361",
			Holder: "alice", Reason: "monthly close", FencingToken: 1, TTL: 30 * time.Second,
			AcquireTime: time.Now().UTC(), RenewTime: time.Now().UTC(), ExpireTime: time.Now().Add(30 * time.Second).UTC(),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("info (-want +got):\n%s", diff)
		}
		raw, err := client.Get(t.Context(), "billing:report", lock.WithRaw())
		if err != nil || raw.Key != "lock:billing:report" || raw.Owner != "secret" {
			t.Errorf("raw: key %q and owner %q, %v", raw.Key, raw.Owner, err)
		}
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		defer mustRelease(t, mustHold(t, client, lock.WithOwner("mine")))
		other, err := client.Acquire(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		defer mustRelease(t, other)
		if all, err := client.List(t.Context()); err != nil || len(all) != 2 || strings.Contains(all[0].Key+all[1].Key, "other") {
			t.Errorf("all: %v, %v; want two without their keys", all, err)
		}
		mine, err := client.List(t.Context(), lock.WithOwner("mine"), lock.WithRaw())
		if err != nil || len(mine) != 1 || mine[0].Key != "lock:billing:report" {
			t.Errorf("mine: %v, %v", mine, err)
		}
	})
}

func TestOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		held := mustHold(t, client)
		check := func(when string, want bool) {
			t.Helper()
			owns, err := client.Owns(t.Context(), "billing:report", held.Owner())
			heldOwns, heldErr := held.Owns(t.Context())
			if owns != want || heldOwns != want || err != nil || heldErr != nil {
				t.Errorf("%s: %t %v and %t %v, want %t", when, owns, err, heldOwns, heldErr, want)
			}
		}
		check("held", true)
		if owns, err := client.Owns(t.Context(), "billing:report", "other"); owns || err != nil {
			t.Errorf("another owner: %t, %v", owns, err)
		}
		mustRelease(t, held)
		check("released", false)
		service.SetHooks(before(locktest.Failing(locktest.Get, lock.ErrUnavailable)))
		if _, err := held.Owns(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

func TestClientForceRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		held := mustHold(t, client)
		if err := client.ForceRelease(t.Context(), "billing:report", " \n"); !errors.Is(err, lock.ErrInvalid) || held.Err() != nil {
			t.Errorf("without a reason: got %v, want ErrInvalid", err)
		}
		longest := strings.Repeat("é", rules.MaxReasonLength)
		if err := client.ForceRelease(t.Context(), "billing:report", longest+"é"); !errors.Is(err, lock.ErrInvalid) || held.Err() != nil {
			t.Errorf("with a reason that is too long: got %v, want ErrInvalid", err)
		}
		other := lock.WithFencingToken(held.FencingToken() + 1)
		if err := client.ForceRelease(t.Context(), "billing:report", "holder is stuck", other); !errors.Is(err, lock.ErrOtherGrant) || held.Err() != nil {
			t.Errorf("of another grant: got %v, want ErrOtherGrant", err)
		}
		if err := client.ForceRelease(t.Context(), "billing:report", longest, lock.WithFencingToken(held.FencingToken())); err != nil {
			t.Fatal(err)
		}
		<-held.Done()
		if err := client.ForceRelease(t.Context(), "billing:report", "holder is stuck"); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("again: got %v, want ErrNotHeld", err)
		}
		_ = held.Release(t.Context())
	})
}

func TestKeysAreShownWithoutOwnerTokens(t *testing.T) {
	client := lock.NewClient(newBackend(), "default")
	held := mustHold(t, client, lock.WithOwner("secret"))
	defer mustRelease(t, held)
	listed, err := client.List(t.Context(), lock.WithKeys())
	if err != nil || len(listed) != 1 {
		t.Fatalf("got %v, %v", listed, err)
	}
	if listed[0].Key != string(key) || listed[0].Owner != lock.Fingerprint("secret") {
		t.Errorf("got %+v, want the key, and the fingerprint of the owner token", listed[0])
	}
}
