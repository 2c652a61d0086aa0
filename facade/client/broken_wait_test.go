package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// brokenAfter breaks the connection of a request that is not carried out.
func brokenAfter(wait time.Duration) fault {
	return func(func() (*http.Response, error)) (*http.Response, error) {
		<-time.After(wait)
		return nil, errReset
	}
}

// unreached has no connection come about.
func unreached(func() (*http.Response, error)) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errReset}
}

// brokenHere breaks the connection at the client's side alone: the façade lets the call wait on.
func (f *fixture) brokenHere(after time.Duration) fault {
	return func(carry func() (*http.Response, error)) (*http.Response, error) {
		f.isDetached.Store(true)
		go func() {
			if response, err := carry(); err == nil {
				_ = response.Body.Close() // It is in memory.
			}
		}()
		<-f.locks.waiting
		f.isDetached.Store(false)
		<-time.After(after)
		return nil, errReset
	}
}

// A caller that waits at a replica which dies goes on at another one, under the same owner token, for the rest of its
// time: its place is kept.
func TestAWaitGoesOnWhenItsConnectionBreaks(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		wait   time.Duration
		faults []fault
		// rest is what the last call asks for, and calls is how many there are.
		rest  time.Duration
		calls int
		err   error
	}{
		"once":                     {30 * second, []fault{brokenAfter(5 * second)}, 25 * second, 2, nil},
		"a wait without bound":     {lock.WaitForever, []fault{brokenAfter(5 * second)}, time.Minute, 2, nil},
		"near the end of the wait": {30 * second, []fault{brokenAfter(29 * second)}, second, 2, nil},
		"the dead replica is called again": {
			30 * second, []fault{brokenAfter(5 * second), unreached, lostRequest, unreached}, 25 * second, 5, nil,
		},
		"the dead replica is called for long": {30 * second, append([]fault{brokenAfter(5 * second)}, slices.Repeat([]fault{unreached}, 200)...), 0, 0, lock.ErrUnavailable},
		"no connection holds":                 {30 * second, append([]fault{brokenAfter(5 * second)}, slices.Repeat([]fault{lostRequest}, 200)...), 0, 0, lock.ErrUnavailable},
		"after the wait":                      {30 * second, []fault{brokenAfter(31 * second)}, 0, 0, lock.ErrUnavailable},
		"at once":                             {30 * second, []fault{brokenAfter(10 * time.Millisecond)}, 0, 0, lock.ErrUnavailable},
		"each time":                           {lock.WaitForever, slices.Repeat([]fault{brokenAfter(second)}, 200), 0, 0, lock.ErrUnavailable},
	} {
		for _, owner := range []string{"", "job-17"} {
			t.Run(name+" for owner "+owner, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.befallAcquires(test.faults...)
					request := waiting(test.wait)
					request.Owner = owner
					granted, err := f.Acquire(t.Context(), namespace, request)
					if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
						t.Fatalf("got %v", err)
					}
					if test.err != nil {
						f.wantHeld()
						return
					}
					requests := f.locks.requests()
					asked := requests[len(requests)-1]
					if asked.Owner != granted.Spec.Owner || owner != "" && granted.Spec.Owner != owner {
						t.Error("the owner token is another one")
					}
					if asked.Wait.Round(second) != test.rest {
						t.Errorf("asked to wait %s", asked.Wait)
					}
					if calls := f.called("acquire"); calls != test.calls {
						t.Errorf("asked %d times", calls)
					}
				})
			})
		}
	}
}

// A replica may go between two calls of a wait, or be called once more then.
func TestAWaitGoesOnAtABoundary(t *testing.T) {
	for name, broken := range map[string]fault{"it has gone": lostRequest, "there is no connection": unreached} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, client.WithMaxBlock(2*time.Second))
				f.locks.letWaitsEnd()
				f.hold("k", "other")
				f.befallAcquires(nil, broken)
				if _, err := f.Acquire(t.Context(), namespace, waiting(10*time.Second)); !errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v, want ErrTimeout", err)
				}
			})
		})
	}
}

// A service that goes away during a wait is an outage for a caller whose context then ends, unless another replica has let
// it wait.
func TestAWaitThatGoesOnEndsWithItsContext(t *testing.T) {
	for name, isOutage := range map[string]bool{"no replica is left": true, "another replica lets it wait": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.hold("k", "other")
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				faults := []fault{brokenAfter(time.Second)}
				if isOutage {
					faults = append(faults, slices.Repeat([]fault{func(carry func() (*http.Response, error)) (*http.Response, error) {
						if ctx.Err() != nil {
							return nil, ctx.Err() // As a transport does that has a context.
						}
						return unreached(carry)
					}}, 1000)...)
				}
				f.befall(faults...)
				_, err := f.Acquire(ctx, namespace, waiting(lock.WaitForever))
				if _, ok := errors.AsType[*lock.InterruptedError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrUnavailable) != isOutage {
					t.Errorf("got %v", err)
				}
				f.Close()
			})
		})
	}
}

// A façade that takes calls and says nothing is left after one: a backend in line has time to ask elsewhere then.
func TestAWaitEndsAtASilentFacade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.isSilent = true
		began := time.Now()
		_, err := f.Acquire(t.Context(), namespace, waiting(5*time.Minute))
		if took := time.Since(began); !errors.Is(err, lock.ErrUnavailable) || took > 80*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		f.Close()
	})
}

// The connection of a wait may break again while it looks for the grant of a former call, which it does more and more
// seldom.
func TestAGrantToTheSecondCallWhoseConnectionHasBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.hold("k", "other")
		f.befallAcquires(brokenAfter(time.Second), f.brokenHere(50*time.Second))
		time.AfterFunc(52*time.Second, func() {
			if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		if _, err := f.Acquire(t.Context(), namespace, waiting(time.Hour)); err != nil {
			t.Fatal(err)
		}
		// It looks within half a second of the second break, and again within 4.5 s.
		if took := time.Since(began); took > 56*time.Second {
			t.Errorf("it has waited for its own lock until %s", took)
		}
		f.wantHeld("lock:k")
	})
}

// A caller that cannot look whether it holds the lock waits all the same: it may lack the right, or the façade is busy.
func TestAWaitGoesOnWithoutALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, client.WithMaxBlock(2*time.Second))
		f.hold("k", "other")
		f.locks.SetHooks(locktest.Hooks{
			Before: func(_ context.Context, call locktest.Call) error {
				if call.Verb == locktest.Get {
					return lock.ErrUnavailable
				}
				return nil
			},
			Waiting: func(_ context.Context, call locktest.Call) error {
				<-time.After(call.Request.Wait)
				return lock.ErrTimeout
			},
		})
		f.befallAcquires(brokenAfter(time.Second))
		time.AfterFunc(time.Minute, func() {
			if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
				t.Error(err)
			}
		})
		if _, err := f.Acquire(t.Context(), namespace, waiting(time.Hour)); err != nil {
			t.Error(err)
		}
		if looks := f.called("status"); looks < 3 || looks > 8 {
			t.Errorf("it has looked %d times", looks)
		}
	})
}

// A call whose connection has broken may be granted the lock while the wait goes on. The caller must not wait for its own
// lock.
func TestAGrantToACallWhoseConnectionHasBroken(t *testing.T) {
	for _, owner := range []string{"", "job-17"} {
		for _, after := range []time.Duration{time.Second, 20 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.hold("k", "other")
				f.befallAcquires(f.brokenHere(5 * time.Second))
				time.AfterFunc(5*time.Second+after, func() {
					if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
						t.Error(err)
					}
				})
				request := waiting(time.Hour)
				request.Owner = owner
				began := time.Now()
				granted, err := f.Acquire(t.Context(), namespace, request)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 5*time.Second+after+max(5*time.Second, 2*after) {
					t.Errorf("it has waited for its own lock until %s", took)
				}
				if f.called("acquire") != 2 || f.called("renew") != 1 || owner != "" && granted.Spec.Owner != owner {
					t.Errorf("asked for %q", f.calls)
				}
				f.wantHeld("lock:k")
			})
		}
	}
}

// The clock of a façade may tell that such a grant is from before the present call. It is from after the first one.
func TestAGrantThatIsOlderThanThePresentCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.hold("k", "other")
		f.befallAcquires(f.brokenHere(5 * time.Second))
		time.AfterFunc(6*time.Second, func() {
			if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			f.locks.clock.SetTime(f.locks.clock.Now().Add(5500 * time.Millisecond))
		})
		began := time.Now()
		if _, err := f.Acquire(t.Context(), namespace, func() lock.Request {
			request := waiting(12 * time.Second)
			request.Owner = "job-17"
			return request
		}()); err != nil {
			t.Error(err)
		}
		// The first look after the grant. Later ones would find it in any case.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it has not known its own grant for %s", took)
		}
	})
}

// The wait goes on under the same owner token: a release would end its next grant.
func TestNothingIsReleasedWhileAWaitGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, client.WithMaxBlock(2*time.Second))
		f.locks.letWaitsEnd()
		f.hold("k", "other")
		f.befallAcquires(brokenAfter(time.Second))
		time.AfterFunc(time.Minute, func() {
			if err := f.locks.ForceRelease(t.Context(), namespace, "lock:k", ""); err != nil {
				t.Error(err)
			}
		})
		if _, err := f.Acquire(t.Context(), namespace, waiting(time.Hour)); err != nil {
			t.Fatal(err)
		}
		// The last look is when the call cannot be granted the lock any more.
		if looks := f.called("status"); looks < 3 || looks > 5 || f.called("release") > 0 {
			t.Errorf("asked for %q", f.calls)
		}
	})
}

// What may be granted late is not left behind by a caller that gives up, and which is told that it may hold the lock.
func TestAWaitThatEndsInDoubt(t *testing.T) {
	const forbidden = "the caller may not"
	for name, test := range map[string]struct {
		wait time.Duration
		// ends is how the second call ends. Leave ends the context.
		ends func(leave func(), carry func() (*http.Response, error)) (*http.Response, error)
		errs []error
	}{
		"at its bound": {6 * time.Second, func(_ func(), carry func() (*http.Response, error)) (*http.Response, error) { return carry() }, []error{lock.ErrTimeout}},
		"with its context": {time.Hour, func(leave func(), _ func() (*http.Response, error)) (*http.Response, error) {
			leave()
			return nil, errReset
		}, []error{context.Canceled}},
		"with its context, after an answer": {time.Hour, func(leave func(), carry func() (*http.Response, error)) (*http.Response, error) {
			response, err := carry()
			leave()
			return response, err
		}, []error{context.Canceled}},
		"with a refusal": {time.Hour, func(_ func(), carry func() (*http.Response, error)) (*http.Response, error) {
			return answered(http.StatusForbidden, forbidden)(carry)
		}, []error{lock.ErrForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				late := make(chan struct{})
				f.locks.SetHooks(locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
					<-time.After(500 * time.Millisecond)
					return lock.ErrTimeout
				}})
				f.befallAcquires(func(carry func() (*http.Response, error)) (*http.Response, error) {
					f.isDetached.Store(true)
					time.AfterFunc(5*time.Second+500*time.Millisecond, func() {
						defer close(late)
						if response, err := carry(); err == nil {
							_ = response.Body.Close() // It is in memory.
						}
					})
					<-time.After(5 * time.Second)
					return nil, errReset
				}, func(carry func() (*http.Response, error)) (*http.Response, error) {
					<-late
					f.isDetached.Store(false)
					return test.ends(leave, carry)
				})
				_, err := f.Acquire(ctx, namespace, waiting(test.wait))
				for _, want := range test.errs {
					if !errors.Is(err, want) {
						t.Errorf("got %v", err)
					}
				}
				f.wantHeld()
			})
		})
	}
}
