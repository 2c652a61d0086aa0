package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// steps are the calls with their keys, without watches.
func steps(service *locktest.Backend) []string {
	var made []string
	for _, call := range service.Calls() {
		if call.Verb != locktest.Watch {
			made = append(made, fmt.Sprintf("%s %s", call.Verb, call.Key.Bare()))
		}
	}
	return made
}

func mustAcquire(t *testing.T, client *lock.Client, key string) *lock.Held {
	t.Helper()
	held, err := client.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func isHeld(t *testing.T, service *locktest.Backend, key string) bool {
	t.Helper()
	_, err := service.Get(t.Context(), "default", v1alpha1.FullKeyOf(key))
	if err != nil && !errors.Is(err, lock.ErrNotHeld) {
		t.Fatal(err)
	}
	return err == nil
}

func TestLocksOfASetAreHeldAndReleasedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		held, err := client.AcquireAll(t.Context(), []string{"c", "a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		// One read of each lock but the last, whose grant is newer than all.
		if got, want := steps(service), []string{"acquire a", "acquire b", "acquire c", "get a", "get b"}; !cmp.Equal(got, want) {
			t.Errorf("calls %v, want %v", got, want)
		}
		var keys []string
		for _, each := range held.Locks() {
			keys = append(keys, each.Key().Bare())
			if each.FencingToken() > held.FencingToken() || held.Deadline().After(each.Deadline()) {
				t.Errorf("%s: token %d, deadline %s; of the set %d, %s", each, each.FencingToken(), each.Deadline(), held.FencingToken(), held.Deadline())
			}
		}
		if !slices.Equal(keys, []string{"a", "b", "c"}) {
			t.Errorf("got locks of %v", keys)
		}
		pass(5 * lock.DefaultTTL) // They are renewed.
		if err := held.Err(); err != nil || !isHeld(t, service, "a") || !isHeld(t, service, "c") {
			t.Errorf("after five ttls: %v", err)
		}
		if err := held.Renew(t.Context(), time.Hour); err != nil || time.Until(held.Deadline()) < 59*time.Minute {
			t.Errorf("renewed until %s: %v", held.Deadline(), err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if isHeld(t, service, "a") || isHeld(t, service, "b") || isHeld(t, service, "c") {
			t.Error("a lock is left")
		}
		if err := context.Cause(held.Context()); !errors.Is(err, lock.ErrReleased) || !errors.Is(held.Err(), lock.ErrReleased) {
			t.Errorf("the context ended by %v", err)
		}
	})
}

func TestASetWaitsForOneLockAndKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		other := mustAcquire(t, client, "b")
		got := make(chan error, 1)
		var held *lock.HeldAll
		go func() {
			var err error
			held, err = client.AcquireAll(t.Context(), []string{"a", "b"})
			got <- err
		}()
		pass(10 * time.Second)
		if isHeld(t, service, "a") {
			t.Error("a is kept while b is waited for")
		}
		mustRelease(t, other)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestASetThatIsNotGrantedHoldsNothing(t *testing.T) {
	// beforeLast has the hook run after the grant of a, which is not the last one.
	beforeLast := func(do func(ctx context.Context, service *locktest.Backend) error) func(*locktest.Backend) locktest.Hooks {
		return func(service *locktest.Backend) locktest.Hooks {
			hooks := unwatched // So a loss is not noticed by chance.
			hooks.After = func(ctx context.Context, call locktest.Call) error {
				if call.Verb == locktest.Acquire && call.Key.Bare() == "a" && call.Request.Owner != "rival" {
					return do(ctx, service)
				}
				return nil
			}
			return hooks
		}
	}
	force := func(ctx context.Context, service *locktest.Backend) error {
		return service.ForceRelease(ctx, "default", v1alpha1.FullKeyOf("a"), "stuck")
	}
	failing := func(verb locktest.Verb, key string) func(*locktest.Backend) locktest.Hooks {
		return func(*locktest.Backend) locktest.Hooks {
			return before(func(_ context.Context, call locktest.Call) error {
				if call.Verb == verb && call.Key.Bare() == key {
					return lock.ErrUnavailable
				}
				return nil
			})
		}
	}
	tests := map[string]struct {
		isHeld  bool
		options []lock.Option
		hooks   func(*locktest.Backend) locktest.Hooks
		took    time.Duration
		want    []error
	}{
		"held, without a wait":                  {isHeld: true, options: []lock.Option{lock.WithWait(0)}, want: []error{lock.ErrHeld}},
		"held for the whole wait":               {isHeld: true, options: []lock.Option{lock.WithWait(time.Second)}, took: time.Second, want: []error{lock.ErrTimeout, lock.ErrHeld}},
		"no answer to the last acquire":         {hooks: failing(locktest.Acquire, "b"), want: []error{lock.ErrUnavailable}},
		"no answer to the reading":              {hooks: failing(locktest.Get, "a"), want: []error{lock.ErrUnavailable}},
		"a lock was lost before the last grant": {hooks: beforeLast(force), want: []error{lock.ErrForceReleased}},
		"and another one has it": {
			hooks: beforeLast(func(ctx context.Context, service *locktest.Backend) error {
				if err := force(ctx, service); err != nil {
					return err
				}
				request := by("rival")
				request.Key = "a"
				_, err := service.Acquire(ctx, "default", request)
				return err
			}),
			want: []error{lock.ErrTakenOver},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default", lock.WithRetry(lock.RetryPolicy{}))
				if test.isHeld {
					other := mustAcquire(t, client, "b")
					defer mustRelease(t, other)
				}
				if test.hooks != nil {
					service.SetHooks(test.hooks(service))
				}
				began := time.Now()
				got, err := client.AcquireAll(t.Context(), []string{"a", "b"}, test.options...)
				took := time.Since(began)
				service.SetHooks(locktest.Hooks{})
				if err == nil {
					_ = got.Release(t.Context())
				}
				if took != test.took {
					t.Errorf("it took %s, want %s: a retry of the client does not count", took, test.took)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want one that matches %v", err, want)
					}
				}
				held, err := service.List(t.Context(), "default", lock.Filter{})
				if err != nil {
					t.Fatal(err)
				}
				for _, each := range held {
					if each.Spec.Owner != "rival" && !test.isHeld || each.Spec.Key == "a" && test.isHeld {
						t.Errorf("%s is left", each.Spec.Key)
					}
				}
			})
		})
	}
}

// A caller that leaves at any step holds nothing.
func TestTheEndOfTheContextEndsASet(t *testing.T) {
	steps := map[string]func(call locktest.Call) bool{
		"during the first try": func(call locktest.Call) bool { return call.Verb == locktest.Acquire && call.Request.Wait == 0 },
		"during a wait":        func(call locktest.Call) bool { return call.Verb == locktest.Acquire && call.Request.Wait > 0 },
		"while it gives back":  func(call locktest.Call) bool { return call.Verb == locktest.Release },
		"during the reading":   func(call locktest.Call) bool { return call.Verb == locktest.Get },
	}
	for name, isStep := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default")
				other := mustAcquire(t, client, "b")
				ctx, cancel := context.WithCancel(t.Context())
				var left atomic.Bool
				service.SetHooks(before(func(_ context.Context, call locktest.Call) error {
					if isStep(call) && left.CompareAndSwap(false, true) {
						cancel()
					}
					return nil
				}))
				got := make(chan error, 1)
				go func() {
					_, err := client.AcquireAll(ctx, []string{"a", "b"})
					got <- err
				}()
				pass(time.Second)
				mustRelease(t, other)
				err := <-got
				if !left.Load() {
					t.Error("the step was not reached")
				}
				if _, isInterrupted := errors.AsType[*lock.InterruptedError](err); !isInterrupted || !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want an InterruptedError", err)
				}
				service.SetHooks(locktest.Hooks{})
				if isHeld(t, service, "a") || isHeld(t, service, "b") {
					t.Error("a lock is left")
				}
			})
		})
	}
}

func TestALockThatASetLosesWhileItWaitsEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		// Each round finds another lock held, so after the third the set keeps a while it waits for b.
		b := mustAcquire(t, client, "b")
		got := make(chan error, 1)
		go func() {
			_, err := client.AcquireAll(t.Context(), []string{"a", "b"})
			got <- err
		}()
		pass(time.Second)
		a := mustAcquire(t, client, "a")
		mustRelease(t, b)
		pass(time.Second)
		b = mustAcquire(t, client, "b")
		mustRelease(t, a)
		pass(time.Second)
		if !isHeld(t, service, "a") {
			t.Fatal("a is not kept after three rounds")
		}
		if err := service.ForceRelease(t.Context(), "default", v1alpha1.FullKeyOf("a"), "stuck"); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, lock.ErrForceReleased) || !strings.Contains(err.Error(), "lock:a") {
			t.Errorf("got %v, want that a was released by force", err)
		}
		mustRelease(t, b)
	})
}

func TestTheLossOfOneLockEndsTheWorkUnderAll(t *testing.T) {
	for _, lost := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			service := newBackend()
			client := lock.NewClient(service, "default")
			err := client.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, _ *lock.HeldAll) error {
				if err := service.ForceRelease(t.Context(), "default", v1alpha1.FullKeyOf(lost), "stuck"); err != nil {
					t.Fatal(err)
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !errors.Is(err, lock.ErrForceReleased) {
				t.Errorf("%s: got %v, want ErrForceReleased", lost, err)
			}
			if isHeld(t, service, "a") || isHeld(t, service, "b") {
				t.Errorf("%s: the other lock is left", lost)
			}
		})
	}
}

func TestALossIsNotToldAsARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held, err := lock.NewClient(service, "default").AcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if err := service.ForceRelease(t.Context(), "default", v1alpha1.FullKeyOf("b"), "stuck"); err != nil {
			t.Fatal(err)
		}
		<-held.Context().Done()
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrForceReleased) {
			t.Errorf("the release returns %v, want ErrForceReleased", err)
		}
		if err := held.Err(); !errors.Is(err, lock.ErrForceReleased) || !errors.Is(context.Cause(held.Context()), lock.ErrForceReleased) {
			t.Errorf("got %v, and of the context %v, want ErrForceReleased", err, context.Cause(held.Context()))
		}
	})
}

func TestASetIsReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		service.SetHooks(before(delaying(5*time.Second, locktest.Release)))
		began := time.Now()
		if err := lock.NewClient(service, "default").DoAll(t.Context(), []string{"a", "b", "c"}, nothing); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("three releases of 5 s took %s", took)
		}
	})
}

func nothing(context.Context, *lock.HeldAll) error { return nil }

func TestWhichSetsKeepNothingWhileTheyWait(t *testing.T) {
	for name, options := range map[string][]lock.Option{
		"those that are told so":    {lock.WithoutHoldAndWait()},
		"those without any renewal": {lock.WithoutRenewal()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default", lock.WithTTL(time.Minute))
				b, got := mustAcquire(t, client, "b"), make(chan error, 1)
				go func() { got <- client.DoAll(t.Context(), []string{"a", "b"}, nothing, options...) }()
				for range 4 { // One lock or the other is held all the time.
					pass(time.Second)
					a := mustAcquire(t, client, "a")
					mustRelease(t, b)
					pass(time.Second)
					b = mustAcquire(t, client, "b")
					mustRelease(t, a)
				}
				pass(time.Second)
				if isHeld(t, service, "a") {
					t.Error("a is kept")
				}
				mustRelease(t, b)
				if err := <-got; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWhichSetsAreInvalid(t *testing.T) {
	many := make([]string, lock.MaxTogether+1)
	for index := range many {
		many[index] = fmt.Sprint("k", index)
	}
	service := newBackend()
	client := lock.NewClient(service, "default")
	for text, keys := range map[string][]string{
		"keys: Required value":                           nil,
		"keys: Too many: 17: must have at most 16 items": many,
		`keys[2]: Duplicate value: "a"`:                  {"a", "b", "a"},
		"keys[1]: Invalid value":                         {"a", "b\x00"},
	} {
		_, err := client.AcquireAll(t.Context(), keys)
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: got %v, want one that says %s", keys, err, text)
		}
	}
	if made := requests(service); len(made) > 0 {
		t.Errorf("requests %v, want none", made)
	}
}

func TestASetIsNotAcquiredUnderOneOfItsLocks(t *testing.T) {
	client := lock.NewClient(newBackend(), "default")
	err := client.Do(t.Context(), "b", func(ctx context.Context, _ *lock.Held) error {
		_, err := client.AcquireAll(ctx, []string{"a", "b"})
		return err
	})
	if !errors.Is(err, lock.ErrDoubleLock) {
		t.Errorf("got %v, want ErrDoubleLock", err)
	}
	err = client.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, _ *lock.HeldAll) error {
		_, err := client.Acquire(ctx, "a")
		return err
	})
	if !errors.Is(err, lock.ErrDoubleLock) {
		t.Errorf("got %v, want ErrDoubleLock", err)
	}
}

// A lock that the context carries is not told to be taken before another.
func TestADoubleLockIsToldBeforeTheOrder(t *testing.T) {
	client := lock.NewClient(newBackend(), "default", lock.WithOrderCheck())
	err := client.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, _ *lock.HeldAll) error {
		_, err := client.Acquire(ctx, "a")
		return err
	})
	if !errors.Is(err, lock.ErrDoubleLock) || errors.Is(err, lock.ErrLockOrder) {
		t.Errorf("got %v, want ErrDoubleLock", err)
	}
}

func TestLocksAreWaitedForInOrderIfTheProgramAsksForIt(t *testing.T) {
	service := newBackend()
	plain := lock.NewClient(service, "m")
	checked := plain.With(lock.WithOrderCheck())
	acquire := func(key string, options ...lock.Option) func(context.Context, *lock.Client) error {
		return func(ctx context.Context, client *lock.Client) error {
			return released(ctx)(client.Acquire(ctx, key, options...))
		}
	}
	tests := map[string]struct {
		client *lock.Client
		call   func(context.Context, *lock.Client) error
		want   error
	}{
		"in order":                {checked, acquire("d"), nil},
		"out of order":            {checked, acquire("b"), lock.ErrLockOrder},
		"of an earlier namespace": {lock.NewClient(service, "l", lock.WithOrderCheck()), acquire("z"), lock.ErrLockOrder},
		"of a later namespace":    {lock.NewClient(service, "n", lock.WithOrderCheck()), acquire("a"), nil},
		"of another backend":      {lock.NewClient(newBackend(), "m", lock.WithOrderCheck()), acquire("b"), nil},
		"not asked for":           {plain, acquire("b"), nil},
		"without a wait":          {checked, acquire("b", lock.WithWait(0)), nil},
		"of a set, partly": {checked, func(ctx context.Context, client *lock.Client) error {
			return client.DoAll(ctx, []string{"d", "b"}, nothing)
		}, lock.ErrLockOrder},
		"of a set": {checked, func(ctx context.Context, client *lock.Client) error {
			return client.DoAll(ctx, []string{"e", "d"}, nothing)
		}, nil},
		"of a lock that is taken up": {checked, func(ctx context.Context, client *lock.Client) error {
			held, err := plain.Acquire(ctx, "b")
			if err != nil {
				return err
			}
			if err := held.Detach(); err != nil {
				return err
			}
			return released(ctx)(client.Resume(ctx, "b", lock.Proof{Owner: held.Owner()}))
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := plain.Do(t.Context(), "c", func(ctx context.Context, _ *lock.Held) error { return test.call(ctx, test.client) })
			if !errors.Is(err, test.want) || test.want != nil && !strings.Contains(err.Error(), "lock:c") {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
