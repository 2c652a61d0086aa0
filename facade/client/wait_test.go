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
