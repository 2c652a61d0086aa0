package forrst_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

const bothKeys = `"keys":["b","a"],"ttl":{"value":30},"owner":"o"`

func TestAcquireAllFunction(t *testing.T) {
	f := newFixture(t)
	got := f.post(envelopeWith(wire.AcquireAll, arguments(bothKeys), ""))
	const common = `"owner":"o","scope":"global","holder":"system:anonymous","ttl":{"value":30,"unit":"second"},` + stamps + `,"expires_at":"2024-03-15T10:30:30Z"`
	want := `{"acquired":true,"owner":"o","fencing_token":2,"expires_at":"2024-03-15T10:30:30Z","locks":[` +
		`{"key":"a","full_key":"lock:a",` + common + `,"fencing_token":1},{"key":"b","full_key":"lock:b",` + common + `,"fencing_token":2}]}`
	if diff := cmp.Diff(want, string(got.Result)); diff != "" || got.status != 200 || got.fencing != 2 {
		t.Errorf("status %d, token %d (-want +got):\n%s", got.status, got.fencing, diff)
	}
	f.wantHeld("lock:a", "lock:b")
	for _, key := range []string{"lock:a", "lock:b"} {
		if got := f.post(envelopeWith(wire.Release, arguments(`"key":"`+key+`","owner":"o"`), "")); got.status != 200 {
			t.Errorf("release %s: %s", key, got.body)
		}
	}
	f.wantHeld()
}

func TestLocksOfAcquireAllHaveOneOwner(t *testing.T) {
	f := newFixture(t)
	got := f.post(envelopeWith(wire.AcquireAll, arguments(`"keys":["a","b"],"scope":"function","function":"f"`), ""))
	owners := map[string]bool{}
	for _, held := range f.locks.All() {
		owners[held.Spec.Owner] = true
	}
	if got.status != 200 || len(owners) != 1 || owners[""] {
		t.Errorf("owners %v: %s", owners, got.body)
	}
	f.wantHeld("lock:f:a", "lock:f:b")
}

func TestAcquireAllWithoutSuccessLeavesNothing(t *testing.T) {
	t.Run("one is held", func(t *testing.T) {
		f := newFixture(t)
		f.hold("b", "x", time.Minute)
		got := f.post(envelopeWith(wire.AcquireAll, arguments(bothKeys), ""))
		f.wantProblems(got, 423, "LOCK_ACQUISITION_FAILED")
		if details := string(got.Errors[0].Details); !strings.HasPrefix(details, `{"key":"b","scope":"global","full_key":"lock:b","holder":"alice"`) {
			t.Errorf("details %s", details)
		}
		f.wantHeld("lock:b")
	})
	t.Run("one has ended before the other was granted", func(t *testing.T) {
		f := newFixture(t)
		f.locks.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire && call.Key == "lock:b" {
				return f.locks.ForceRelease(ctx, namespace, "lock:a", "r")
			}
			return nil
		}})
		got := f.post(envelopeWith(wire.AcquireAll, arguments(bothKeys), ""))
		f.wantProblems(got, 404, "LOCK_NOT_FOUND")
		if details := string(got.Errors[0].Details); details != `{"key":"a"}` {
			t.Errorf("details %s", details)
		}
		f.wantHeld()
	})
	t.Run("the client has gone", func(t *testing.T) {
		f := newFixture(t)
		ctx, leave := context.WithCancel(t.Context())
		f.locks.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire && call.Key == "lock:b" {
				leave()
			}
			return nil
		}})
		f.serve(httptest.NewRequestWithContext(ctx, http.MethodPost, forrst.Path, strings.NewReader(envelopeWith(wire.AcquireAll, arguments(bothKeys), ""))))
		f.wantHeld()
	})
}

func TestArgumentsOfAcquireAllThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		arguments string
		want      []string
	}{
		"nothing":             {``, []string{"keys"}},
		"no array":            {`"keys":"a"`, []string{"keys"}},
		"a number":            {`"keys":["a",1]`, []string{"keys"}},
		"a key twice":         {`"keys":["a","b","a"]`, []string{"keys/2"}},
		"an invalid key":      {`"keys":["a","b\u0000"]`, []string{"keys/1"}},
		"another way":         {`"keys":["a"],"together":"loose"`, []string{"together"}},
		"too many, no ttl":    {`"keys":["` + strings.Repeat(`a","`, 16) + `b"],"ttl":{"value":0}`, []string{"ttl/value", "keys"}},
		"a function too many": {`"keys":["a"],"function":"f"`, []string{"function"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var want []string
			for _, pointer := range test.want {
				want = append(want, "INVALID_ARGUMENTS /call/arguments/"+pointer)
			}
			f.wantProblems(f.post(envelopeWith(wire.AcquireAll, arguments(test.arguments), "")), 400, want...)
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("tried %+v", calls)
			}
		})
	}
}

// The right to each of the locks is asked for before anything is done.
func TestAcquireAllNeedsTheRightToEachLock(t *testing.T) {
	for title, test := range map[string]struct{ denied, arguments string }{
		"to create the first":      {"create a", bothKeys},
		"to create the second":     {"create b", bothKeys},
		"to prioritize the second": {"prioritize b", bothKeys + `,"priority":1`},
	} {
		t.Run(title, func(t *testing.T) {
			f, _ := withRights(t, func(right authorizationv1.ResourceAttributes) error {
				if right.Name == "" || right.Verb+" "+right.Name == test.denied {
					return fmt.Errorf("%w: no", lock.ErrForbidden)
				}
				return nil
			})
			f.wantProblems(f.post(envelopeWith(wire.AcquireAll, arguments(test.arguments), "")), 403, "FORBIDDEN")
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("tried %+v", calls)
			}
			if got := f.post(envelopeWith(wire.AcquireAll, arguments(`"keys":["c","d"],"priority":1`), "")); got.status != 200 {
				t.Errorf("others: %s", got.body)
			}
		})
	}
}
