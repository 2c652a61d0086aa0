package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestLongWaitsAreMadeOfSeveral(t *testing.T) {
	const second = time.Second
	cases := map[string]struct {
		wait    time.Duration
		options []client.Option
		// facade is the maximum there.
		facade time.Duration
		want   []time.Duration
	}{
		"no wait":                        {0, nil, 0, []time.Duration{0}},
		"a short one":                    {second, nil, 0, []time.Duration{second}},
		"less than durations can say":    {1, nil, 0, []time.Duration{time.Millisecond}},
		"just what is permitted":         {time.Minute, nil, 0, []time.Duration{time.Minute}},
		"more than that":                 {150 * second, nil, 0, []time.Duration{60 * second, 60 * second, 30 * second}},
		"a little more":                  {60*second + 1, nil, 0, []time.Duration{60 * second, time.Millisecond}},
		"a client that is told less":     {25 * second, []client.Option{client.WithMaxBlock(10 * second)}, 0, []time.Duration{10 * second, 10 * second, 5 * second}},
		"a façade that permits less":     {25 * second, nil, 10 * second, []time.Duration{10 * second, 10 * second, 5 * second}},
		"a façade that permits more":     {70 * second, nil, time.Hour, []time.Duration{60 * second, 10 * second}},
		"a façade that permits the wait": {5 * second, nil, 10 * second, []time.Duration{5 * second}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureWith(t, func(config *testfacade.Settings) { config.MaxBlock = test.facade }, test.options...)
				f.hold("k", "o")
				f.locks.letWaitsEnd()
				start := time.Now()
				_, err := f.Acquire(t.Context(), namespace, waiting(test.wait))
				if held, ok := errors.AsType[*lock.HeldError](err); !ok || held.Holder != "alice" || errors.Is(err, lock.ErrTimeout) != (test.wait > 0) {
					t.Errorf("got %v", err)
				}
				if waits := f.locks.waits(); !slices.Equal(waits, test.want) {
					t.Errorf("asked to wait %s, want %s", waits, test.want)
				}
				if took := time.Since(start); took < test.wait || took > test.wait+time.Millisecond {
					t.Errorf("waited %s, want %s", took, test.wait)
				}
			})
		})
	}
}

func TestWhatTheFacadePermitsIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, func(config *testfacade.Settings) { config.MaxBlock = time.Second })
		f.hold("k", "o")
		f.locks.letWaitsEnd()
		for range 2 {
			if _, err := f.Acquire(t.Context(), namespace, waiting(2*time.Second)); !errors.Is(err, lock.ErrTimeout) {
				t.Error(err)
			}
		}
		f.wantCalls("acquire", "acquire", "acquire", "acquire", "acquire") // The first is refused.
	})
}

func TestWaitForever(t *testing.T) {
	for name, options := range map[string][]client.Option{
		"in calls of a minute":      nil,
		"in as few calls as can be": {client.WithMaxBlock(lock.WaitForever)},
	} {
		t.Run(name, func(t *testing.T) { testWaitForever(t, options...) })
	}
}

func testWaitForever(t *testing.T, options ...client.Option) {
	t.Helper()
	f := newFixture(t, options...)
	f.hold("k", "o")
	granted := make(chan *v1alpha1.Lock, 1)
	go func() {
		got, err := f.Acquire(t.Context(), namespace, waiting(lock.WaitForever))
		if err != nil {
			t.Error(err)
		}
		granted <- got
	}()
	<-f.locks.waiting
	if err := f.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "o"}); err != nil {
		t.Error(err)
	}
	if got := <-granted; got == nil || *got.Spec.FencingToken != 2 {
		t.Errorf("granted %+v", got)
	}
	if waits := f.locks.waits(); !slices.Equal(waits, []time.Duration{time.Minute}) {
		t.Errorf("asked to wait %s, want a minute", waits)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	f.hold("k", "o")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.locks.waiting
		cancel()
	}()
	if got, err := f.Acquire(ctx, namespace, waiting(lock.WaitForever)); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, %v", got, err)
	}
	f.wantHeld("lock:k")
	if _, err := f.Acquire(ctx, namespace, forKey("free")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	f.wantHeld("lock:k")
}

// A context that ends while a wait moves to another replica interrupts it, and is no outage.
func TestAMovingWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
			if call.Verb != locktest.Acquire {
				return nil
			}
			<-time.After(5 * time.Second)
			time.AfterFunc(20*time.Millisecond, cancel)
			return lock.ErrUnavailable
		}})
		_, err := f.Acquire(ctx, namespace, waiting(30*time.Second))
		if interrupted, ok := errors.AsType[*lock.InterruptedError](err); !ok || interrupted.Key != "lock:k" || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// A wait that the façade ends because it stops goes on at another replica, under the same owner token, for the
// rest of its time. A façade that refuses at once, or for long, is not asked again.
func TestAWaitGoesOnWhenItsReplicaStops(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		// waits is for how long each call waits before it is told that the replica stops. The next is granted the lock.
		waits []time.Duration
		want  []time.Duration
		err   error
	}{
		"one stops":         {[]time.Duration{5 * second}, []time.Duration{30 * second, 25*second - 100*time.Millisecond}, nil},
		"so does the next":  {[]time.Duration{5 * second, 0, 2 * second}, []time.Duration{30 * second, 24900 * time.Millisecond, 24800 * time.Millisecond, 22700 * time.Millisecond}, nil},
		"it refuses a wait": {[]time.Duration{0}, []time.Duration{30 * second}, lock.ErrUnavailable},
		"it goes on doing so": {
			append([]time.Duration{second}, make([]time.Duration, 100)...), nil, lock.ErrUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				calls := 0
				f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
					if call.Verb != locktest.Acquire {
						return nil
					}
					calls++
					if calls > len(test.waits) {
						return nil
					}
					<-time.After(test.waits[calls-1])
					return lock.ErrUnavailable
				}})
				began := time.Now()
				_, err := f.Acquire(t.Context(), namespace, waiting(30*second))
				if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("got %v", err)
				}
				requests := f.locks.requests()
				var waits []time.Duration
				for _, request := range requests {
					waits = append(waits, request.Wait)
					if request.Owner != requests[0].Owner {
						t.Error("the owner token has changed")
					}
				}
				if test.want != nil && !slices.Equal(waits, test.want) {
					t.Errorf("asked to wait %s, want %s", waits, test.want)
				}
				if took := time.Since(began); test.want == nil && (took < 4*second || took > 6*second) {
					t.Errorf("gave up after %s", took)
				}
			})
		})
	}
}

// An API server that does not answer for long is told in the end, also to a caller that waits.
func TestAWaitEndsWithoutTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct{ wait, most time.Duration }{
		"at its bound":           {10 * time.Second, 11 * time.Second},
		"if it has none, sooner": {lock.WaitForever, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
					if call.Verb == locktest.Acquire {
						<-time.After(min(call.Request.Wait, lock.OperationTimeout))
					}
					return lock.ErrUnavailable
				}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, err := f.Acquire(ctx, namespace, waiting(test.wait))
				if took := time.Since(began); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || took > test.most {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
