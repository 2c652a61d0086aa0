package locks_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

func TestReasonOfAForcedRelease(t *testing.T) {
	const missing, tooLong = "must say why the lock is taken from its holder", "may not be more than 1024"
	cases := map[string]struct {
		reason          string
		isAuthenticated bool
		want            string
	}{
		"none, without an identity":       {},
		"blank, without an identity":      {reason: " \t"},
		"too long, without an identity":   {reason: strings.Repeat("é", 1025), want: tooLong},
		"none":                            {isAuthenticated: true, want: missing},
		"blank":                           {reason: " \t\u00a0\n", isAuthenticated: true, want: missing},
		"as long as it may be":            {reason: strings.Repeat("é", 1024), isAuthenticated: true},
		"too long":                        {reason: strings.Repeat("é", 1025), isAuthenticated: true, want: tooLong},
		"blank and too long is one error": {reason: strings.Repeat(" ", 1025), isAuthenticated: true, want: tooLong},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			backend := locktest.New(locktest.WithRecord())
			if _, err := backend.Acquire(t.Context(), "default", lock.Request{Acquisition: rules.Acquisition{Key: "k", TTL: time.Minute, Holder: "a"}}); err != nil {
				t.Fatal(err)
			}
			l, caller := newLocks(t, backend)
			caller.IsAuthenticated = test.isAuthenticated
			backend.Calls() // Forgets the acquire.
			forced, err := l.PrepareForceRelease(caller, "lock:k", test.reason)
			if calls := backend.Calls(); len(calls) > 0 {
				t.Errorf("tried %+v", calls)
			}
			if test.want != "" {
				invalid, ok := errors.AsType[*lock.InvalidError](err)
				if !ok || len(invalid.Problems) != 1 || invalid.Problems[0].Field != "reason" || !strings.Contains(invalid.Problems[0].Detail, test.want) {
					t.Errorf("got %v, want %q about the reason", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := forced.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []locktest.Call{{Verb: locktest.ForceRelease, Namespace: "default", Key: "lock:k", Reason: test.reason}}
			if diff := cmp.Diff(want, backend.Calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
