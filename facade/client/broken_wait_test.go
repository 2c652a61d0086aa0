package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
)

// brokenAfter breaks the connection of a request that is not carried out.
func brokenAfter(wait time.Duration) fault {
	return func(func() (*http.Response, error)) (*http.Response, error) {
		<-time.After(wait)
		return nil, errReset
	}
}

// carryOut has a request carried out whose answer nobody waits for.
func carryOut(carry func() (*http.Response, error)) {
	if response, err := carry(); err == nil {
		_ = response.Body.Close() // It is in memory.
	}
}

// A caller that waits at a replica which dies goes on at another one, under the same owner token, for the rest of its
// time: its place is kept.
func TestAWaitGoesOnWhenItsConnectionBreaks(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		request lock.Request
		faults  []fault
		waits   []time.Duration
		calls   []string
		err     error
	}{
		"once":                     {waiting(30 * second), []fault{brokenAfter(5 * second)}, []time.Duration{3 * second}, []string{"acquire", "status", "acquire"}, nil},
		"a wait without bound":     {waiting(lock.WaitForever), []fault{brokenAfter(5 * second)}, []time.Duration{3 * second}, []string{"acquire", "status", "acquire"}, nil},
		"near the end of the wait": {waiting(30 * second), []fault{brokenAfter(29 * second)}, []time.Duration{second}, []string{"acquire", "status", "acquire"}, nil},
		"while it looks what has become of it": {
			waiting(30 * second), []fault{brokenAfter(5 * second), lostRequest}, []time.Duration{3 * second}, []string{"acquire", "status", "status", "acquire"}, nil,
		},
		"after the wait": {waiting(30 * second), []fault{brokenAfter(31 * second)}, nil, nil, lock.ErrUnavailable},
		"at once":        {waiting(30 * second), []fault{brokenAfter(10 * time.Millisecond)}, nil, nil, lock.ErrUnavailable},
		"each time": {
			waiting(lock.WaitForever), slices.Repeat([]fault{brokenAfter(second), nil}, 100), nil, nil, lock.ErrUnavailable,
		},
	} {
		for _, owner := range []string{"", "job-17"} {
			t.Run(name+" for owner "+owner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.befall(test.faults...)
					test.request.Owner = owner
					granted, err := f.Acquire(t.Context(), namespace, test.request)
					if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
						t.Fatalf("got %v", err)
					}
					if test.err != nil {
						f.wantHeld()
						return
					}
					requests := f.locks.requests()
					if requests[0].Owner != granted.Spec.Owner || owner != "" && granted.Spec.Owner != owner {
						t.Error("the owner token is another one")
					}
					if got := requests[0].Wait.Round(second); !slices.Equal([]time.Duration{got}, test.waits) {
						t.Errorf("asked to wait %s", got)
					}
					f.wantCalls(test.calls...)
				})
			})
		}
	}
}

// The write for a caller whose replica has died may come after it has looked for a grant. It must not wait for its own
// lock.
func TestAGrantThatComesAfterItsConnectionHasBroken(t *testing.T) {
	for _, owner := range []string{"", "job-17"} {
		for _, wait := range []time.Duration{time.Hour, 6 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.isDetached = true
				f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
					<-time.After(5 * time.Second)
					time.AfterFunc(500*time.Millisecond, func() {
						carryOut(carry)
						// The stamp of the grant is as old as the write has taken: it is from before the present call.
						f.locks.clock.SetTime(f.locks.clock.Now().Add(5 * time.Second))
					})
					return nil, errReset
				}, nil, func(carry func() (*http.Response, error)) (*http.Response, error) {
					<-time.After(time.Second) // Later than the write.
					return carry()
				})
				f.locks.letWaitsEnd()
				request := waiting(wait)
				request.Owner = owner
				began := time.Now()
				granted, err := f.Acquire(t.Context(), namespace, request)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it has waited for its own lock for %s", took)
				}
				f.wantCalls("acquire", "status", "acquire", "status", "renew")
				if *granted.Spec.FencingToken != 1 {
					t.Errorf("the grant is number %d", *granted.Spec.FencingToken)
				}
			})
		}
	}
}

// Such a grant is not left behind by a caller that leaves, whatever its last call has told.
func TestAGrantThatComesWhenItsCallerLeaves(t *testing.T) {
	for name, isAnswered := range map[string]bool{"without an answer": false, "with an answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.isDetached = true
				ctx, leave := context.WithCancel(t.Context())
				f.befall(func(carry func() (*http.Response, error)) (*http.Response, error) {
					<-time.After(5 * time.Second)
					time.AfterFunc(500*time.Millisecond, func() { carryOut(carry) })
					return nil, errReset
				}, nil, func(carry func() (*http.Response, error)) (*http.Response, error) {
					<-time.After(time.Second)
					defer leave()
					if isAnswered {
						return carry()
					}
					return nil, errReset
				})
				f.locks.letWaitsEnd()
				if _, err := f.Acquire(ctx, namespace, waiting(time.Hour)); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				f.wantHeld()
			})
		})
	}
}
