package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestLifeOfALock(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	acquired := v1alpha1.NewTimestamp(f.locks.clock.Now())
	expires := v1alpha1.NewTimestamp(acquired.Add(1500 * time.Millisecond))
	token := int64(1)
	want := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payments.charge--user--1"},
		Spec: v1alpha1.LockSpec{
			Key: "user:1", Scope: v1alpha1.ScopeFunction, Function: "payments.charge", Owner: "o", TTL: &v1alpha1.Duration{Duration: 1500 * time.Millisecond},
			Holder: access.Anonymous, Reason: "monthly <close>", AcquireTime: &acquired, RenewTime: &acquired, ExpireTime: &expires, FencingToken: &token,
		},
	}
	same := func(got *v1alpha1.Lock, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	request := lock.Request{Acquisition: rules.Acquisition{
		Scope: v1alpha1.ScopeFunction, Function: "payments.charge", Key: "user:1", Owner: "o", TTL: 1500 * time.Millisecond, Holder: "forged", Reason: "monthly <close>",
	}}
	same(f.Acquire(ctx, namespace, request))
	key := request.FullKey()
	same(f.Get(ctx, namespace, key))

	f.locks.clock.SetTime(acquired.Add(time.Second))
	renewed, later := v1alpha1.NewTimestamp(f.locks.clock.Now()), v1alpha1.NewTimestamp(acquired.Add(2500*time.Millisecond))
	want.Spec.RenewTime, want.Spec.ExpireTime = &renewed, &later
	same(f.Renew(ctx, namespace, key, lock.Proof{Owner: "o"}, 0))
	longer := v1alpha1.NewTimestamp(renewed.Add(time.Hour))
	want.Spec.TTL, want.Spec.ExpireTime = &v1alpha1.Duration{Duration: time.Hour}, &longer
	same(f.Renew(ctx, namespace, key, lock.Proof{Owner: "o"}, time.Hour))

	listed, err := f.List(ctx, namespace, lock.Filter{Owner: "o"})
	if diff := cmp.Diff([]v1alpha1.Lock{*want}, listed); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	want.Spec.Owner = ""
	listed, err = f.List(ctx, namespace, lock.Filter{})
	if diff := cmp.Diff([]v1alpha1.Lock{*want}, listed); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	if err := f.Release(ctx, namespace, key, lock.Proof{Owner: "o"}); err != nil {
		t.Error(err)
	}
	if err := f.Release(ctx, namespace, key, lock.Proof{Owner: "o"}); !errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrExpired) {
		t.Errorf("a second release: %v", err)
	}
	if _, err := f.Get(ctx, namespace, key); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("a released lock: %v", err)
	}
	f.hold("k", "p")
	err = f.ForceRelease(ctx, namespace, "lock:k", "holder is gone")
	forced := []locktest.Call{{Verb: locktest.ForceRelease, Namespace: namespace, Key: "lock:k", Reason: "holder is gone"}}
	if diff := cmp.Diff(forced, f.locks.Calls()); diff != "" || err != nil {
		t.Errorf("%v, calls (-want +got):\n%s", err, diff)
	}
	f.wantHeld()
}

func TestAForcedReleaseOfOneGrant(t *testing.T) {
	f, ctx := newFixture(t), t.Context()
	f.hold("k", "p")
	token, err := f.locks.All()[0].FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ForceRelease(ctx, namespace, "lock:k", "", lock.Precondition{FencingToken: token + 1}); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("by force, another grant: %v", err)
	}
	f.wantHeld("lock:k")
	if err := f.ForceRelease(ctx, namespace, "lock:k", "", lock.Precondition{FencingToken: token}); err != nil {
		t.Errorf("by force: %v", err)
	}
	f.wantHeld()
}

func TestEveryAcquisitionHasItsOwnOwner(t *testing.T) {
	f := newFixture(t)
	a, err := f.Acquire(t.Context(), namespace, forKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Acquire(t.Context(), "", forKey("b"))
	if err != nil || a.Spec.Owner == b.Spec.Owner || a.Spec.Owner != f.locks.requests()[0].Owner {
		t.Errorf("%v, owners %q and %q", err, a.Spec.Owner, b.Spec.Owner)
	}
	f.wantCalls("acquire", "acquire")
}

func TestKeysOfAllKinds(t *testing.T) {
	for _, key := range []string{"k", "lock:k", "forrst_lock:k", "lock:lock:k", "a/b~c", `"quoted" \ <&>`, "Ключ 🔑", "U\u0308", "a\u2028b", strings.Repeat("k", 512)} {
		for _, function := range []string{"", "f", "urn:x:fn:y", "U\u0308"} {
			f := newFixture(t)
			request := forKey(key)
			if function != "" {
				request.Scope, request.Function = v1alpha1.ScopeFunction, function
			}
			granted, err := f.Acquire(t.Context(), namespace, request)
			if err != nil {
				t.Errorf("key %q of %q: %v", key, function, err)
				continue
			}
			f.wantHeld(string(request.FullKey()))
			if granted.Spec.Key != v1alpha1.NormalizeKey(key) || granted.Spec.FullKey() != request.FullKey() || granted.Name != request.FullKey().ObjectName() {
				t.Errorf("key %q of %q: granted %+v", key, function, granted)
			}
			if err := f.Release(t.Context(), namespace, request.FullKey(), lock.Proof{Owner: granted.Spec.Owner}); err != nil {
				t.Errorf("key %q of %q: %v", key, function, err)
			}
		}
	}
}

func TestWhatNoFacadeGrantsIsNotSent(t *testing.T) {
	of := func(change func(*lock.Request)) lock.Request {
		request := forKey("k")
		change(&request)
		return request
	}
	cases := map[string]struct {
		request lock.Request
		want    error
	}{
		"no key":                 {forKey(""), lock.ErrInvalidKey},
		"a long key":             {forKey(strings.Repeat("k", 513)), lock.ErrInvalidKey},
		"a control character":    {forKey("a\x00"), lock.ErrInvalidKey},
		"white space at the end": {forKey("a "), lock.ErrInvalidKey},
		"an invisible character": {forKey("a\u200b"), lock.ErrInvalidKey},
		"bytes that are none":    {forKey("a\xff"), lock.ErrInvalidKey},
		"an empty function":      {of(func(r *lock.Request) { r.Scope = v1alpha1.ScopeFunction }), lock.ErrInvalidKey},
		"a stray function":       {of(func(r *lock.Request) { r.Function = "f" }), lock.ErrInvalidKey},
		"an unknown scope":       {of(func(r *lock.Request) { r.Scope = "Galaxy" }), lock.ErrInvalid},
		"a negative wait":        {waiting(-1), lock.ErrInvalid},
		"a negative ttl":         {of(func(r *lock.Request) { r.TTL = -1 }), lock.ErrInvalid},
		"a ttl of nearly zero":   {of(func(r *lock.Request) { r.TTL = 999 * time.Microsecond }), lock.ErrInvalid},
		"a ttl above a day":      {of(func(r *lock.Request) { r.TTL = 24*time.Hour + 1 }), lock.ErrInvalid},
		"a long owner":           {of(func(r *lock.Request) { r.Owner = strings.Repeat("o", 513) }), lock.ErrInvalid},
		"an owner of no bytes":   {of(func(r *lock.Request) { r.Owner = "\xff" }), lock.ErrInvalid},
		"a long reason":          {of(func(r *lock.Request) { r.Reason = strings.Repeat("r", 1025) }), lock.ErrInvalid},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.Acquire(t.Context(), namespace, test.request)
			if !errors.Is(err, test.want) || errors.Is(err, lock.ErrInvalidKey) != errors.Is(test.want, lock.ErrInvalidKey) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			f.wantCalls()
		})
	}
}

func TestLimitsOfTheFacade(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) { config.Limits.MaxTTL = time.Minute })
	request := forKey("k")
	request.TTL = time.Hour
	_, err := f.Acquire(t.Context(), namespace, request)
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok || errors.Is(err, lock.ErrInvalidKey) || invalid.Problems[0].Field != "spec.ttl" || !strings.Contains(err.Error(), "at most 60 seconds") {
		t.Errorf("got %v", err)
	}
	f.wantCalls("acquire")
	if _, err := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}, time.Hour); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("renewal: %v", err)
	}
	for _, ttl := range []time.Duration{-time.Second, time.Microsecond} {
		if _, err := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}, ttl); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("renewal by %s: %v", ttl, err)
		}
	}
}

// Every outcome of the locks behind the façade is the same in front of it.
func TestOutcomesPassThrough(t *testing.T) {
	sentinels := map[string]error{
		"held": lock.ErrHeld, "timeout": lock.ErrTimeout, "not held": lock.ErrNotHeld, "expired": lock.ErrExpired, "mismatch": lock.ErrOwnerMismatch,
		"invalid": lock.ErrInvalid, "invalid key": lock.ErrInvalidKey, "unavailable": lock.ErrUnavailable, "refused": lock.ErrRefused,
	}
	held := &lock.HeldError{Key: "lock:k", Holder: "alice", ExpireTime: time.Date(2024, 3, 15, 10, 31, 0, 7000, time.UTC)}
	_, invalidKey := (&rules.Acquisition{Key: "k\n", Owner: "o", Holder: "h"}).Validate(rules.DefaultLimits())
	refused := fmt.Errorf("wrapped: %w", &lock.RefusedError{Reason: `exceeded quota: "locks"`})
	of := map[string][]error{
		"acquire": {held, &lock.HeldError{Key: "lock:k"}, &lock.HeldError{Key: "lock:k", IsExpired: true}, fmt.Errorf("%w: %w", lock.ErrTimeout, held), invalidKey, fmt.Errorf("%w: no namespace", lock.ErrInvalid), lock.ErrUnavailable, refused},
		"renew":   {lock.ErrNotHeld, lock.ErrExpired, lock.ErrOwnerMismatch, invalidKey, lock.ErrUnavailable, refused},
		"release": {lock.ErrNotHeld, lock.ErrExpired, lock.ErrOwnerMismatch, lock.ErrUnavailable, refused},
		"force":   {lock.ErrNotHeld, lock.ErrUnavailable, refused},
		"get":     {lock.ErrNotHeld, lock.ErrExpired, lock.ErrUnavailable},
		"list":    {lock.ErrUnavailable},
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, client.WithTimeout(50*time.Millisecond))
		calls := map[string]func(error) error{
			"acquire": func(cause error) error {
				request := forKey("k")
				if errors.Is(cause, lock.ErrTimeout) {
					request.Wait = time.Millisecond
				}
				_, err := f.Acquire(t.Context(), namespace, request)
				return err
			},
			"renew": func(error) error {
				_, err := f.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}, 0)
				return err
			},
			"release": func(error) error { return f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}) },
			"force":   func(error) error { return f.ForceRelease(t.Context(), namespace, "lock:k", "") },
			"get":     func(error) error { _, err := f.Get(t.Context(), namespace, "lock:k"); return err },
			"list":    func(error) error { _, err := f.List(t.Context(), namespace, lock.Filter{}); return err },
		}
		for name, causes := range of {
			for _, cause := range causes {
				f.locks.fail(cause)
				got := calls[name](cause)
				for what, sentinel := range sentinels {
					if errors.Is(got, sentinel) != errors.Is(cause, sentinel) {
						t.Errorf("%s: %v arrives as %v: %s is %t", name, cause, got, what, errors.Is(got, sentinel))
					}
				}
				want, _ := errors.AsType[*lock.HeldError](cause)
				seen, _ := errors.AsType[*lock.HeldError](got)
				if diff := cmp.Diff(want, seen); diff != "" {
					t.Errorf("%s: %v (-want +got):\n%s", name, cause, diff)
				}
				wantRefusal, _ := errors.AsType[*lock.RefusedError](cause)
				refusal, _ := errors.AsType[*lock.RefusedError](got)
				if diff := cmp.Diff(wantRefusal, refusal); diff != "" {
					t.Errorf("%s: %v (-want +got):\n%s", name, cause, diff)
				}
			}
		}
		f.locks.fail(errors.New("something broke"))
		for name, call := range calls {
			if err := call(nil); err == nil || errors.Is(err, lock.ErrUnavailable) || strings.Contains(err.Error(), "something broke") {
				t.Errorf("%s: an internal error arrives as %v", name, err)
			}
		}
	})
}

func TestOwnersAndKeysThatCannotBe(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	for _, owner := range []string{"", "\xff", strings.Repeat("o", 513)} {
		if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: owner}); !errors.Is(err, lock.ErrOwnerMismatch) {
			t.Errorf("release by %.10q: %v", owner, err)
		}
		if _, err := f.Renew(t.Context(), namespace, "lock:free", lock.Proof{Owner: owner}, 0); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("renewal by %.10q: %v", owner, err)
		}
	}
	f.hold("\uFFFD", "o")
	for _, key := range []v1alpha1.FullKey{"lock:\xff", "lock:", ""} {
		_, got := f.Get(t.Context(), namespace, key)
		_, renewed := f.Renew(t.Context(), namespace, key, lock.Proof{Owner: "o"}, 0)
		for _, err := range []error{got, renewed, f.Release(t.Context(), namespace, key, lock.Proof{Owner: "o"}), f.ForceRelease(t.Context(), namespace, key, "")} {
			if !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
	f.wantHeld("lock:k", "lock:\uFFFD")
}

func TestLimitsOfAProofThatTheProtocolCannotName(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	for limit, proof := range map[string]lock.Proof{
		"no renewal":  {Owner: "o", IsUnrenewed: true},
		"acquisition": {Owner: "o", Acquisition: "another"},
		"version":     {Owner: "o", ResourceVersion: "1"},
	} {
		if _, err := f.Renew(t.Context(), namespace, "lock:k", proof, 0); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: renewal: got %v, want ErrUnsupported", limit, err)
		}
		if err := f.Release(t.Context(), namespace, "lock:k", proof); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: release: got %v, want ErrUnsupported", limit, err)
		}
	}
	f.wantHeld("lock:k")
}

func TestNamespaceIsThatOfTheFacade(t *testing.T) {
	f := newFixture(t)
	for _, other := range []string{"other", "a b", "a\r\nX: y"} {
		if _, err := f.Acquire(t.Context(), other, forKey("k")); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%q: %v", other, err)
		}
	}
	if _, err := f.Acquire(t.Context(), namespace, forKey("k")); err != nil || f.headers.Get("Forrst-Namespace") != namespace {
		t.Errorf("%v, headers %v", err, f.headers)
	}
}

func TestBearerTokenIsInItsHeaderAndNowhereElse(t *testing.T) {
	const secret = "very-secret"
	var failure error
	f := newFixture(t, client.WithBearerToken(func(context.Context) (string, error) { return secret, failure }))
	f.befall(answered(http.StatusUnauthorized, "no"))
	_, err := f.Acquire(t.Context(), namespace, forKey("k"))
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) || errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("a refusal: %v", err)
	}
	if f.headers.Get("Authorization") != "Bearer "+secret {
		t.Errorf("headers %v", f.headers)
	}
	failure = errors.New("file is gone")
	if _, err := f.Get(t.Context(), namespace, "lock:k"); !errors.Is(err, failure) || !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("no token: %v", err)
	}
	f.wantCalls("acquire")
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	f := newFixture(t)
	f.befall(func(func() (*http.Response, error)) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"http://elsewhere.test/forrst"}}, Body: http.NoBody}, nil
	})
	if _, err := f.Acquire(t.Context(), namespace, forKey("k")); err == nil {
		t.Error("no error")
	}
	f.wantCalls("acquire")
	f.wantHeld()
}

func TestArgumentsOfNew(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:8080", "/forrst", "ftp://x", "http://", "http://a b", "://"} {
		if _, err := client.New(url); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	if _, err := client.New("ftp://user:very-secret@x"); err == nil || strings.Contains(err.Error(), "very-secret") {
		t.Errorf("got %v", err)
	}
	for name, option := range map[string]client.Option{"a timeout of zero": client.WithTimeout(0), "a wait of nothing": client.WithMaxBlock(time.Microsecond)} {
		if _, err := client.New("http://x", option); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestListTakesAllParts(t *testing.T) {
	f := newFixture(t)
	const count = 2203 // more than one answer has room for
	for i := range count {
		f.hold(fmt.Sprintf("k%04d", i), "o")
	}
	listed, err := f.List(t.Context(), namespace, lock.Filter{})
	if err != nil || len(listed) != count {
		t.Fatalf("%d locks, %v; want %d", len(listed), err, count)
	}
	for i, held := range listed {
		if want := fmt.Sprintf("k%04d", i); held.Spec.Key != want {
			t.Fatalf("lock %d is %s, want %s", i, held.Spec.Key, want)
		}
	}
}
