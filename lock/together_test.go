package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
		other, err := client.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		began := time.Now()
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
		for _, request := range acquisitions(service)[1:] {
			if request.Key == "b" && request.Wait > 0 && !request.Since.Equal(began) {
				t.Errorf("the place of the wait is that of %s, want that of the call", request.Since)
			}
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
	failing := func(verb locktest.Verb) func(*locktest.Backend) locktest.Hooks {
		return func(*locktest.Backend) locktest.Hooks { return before(locktest.Failing(verb, lock.ErrUnavailable)) }
	}
	tests := map[string]struct {
		options []lock.Option
		hooks   func(*locktest.Backend) locktest.Hooks
		want    []error
	}{
		"held, without a wait":     {options: []lock.Option{lock.WithWait(0)}, want: []error{lock.ErrHeld}},
		"held for the whole wait":  {options: []lock.Option{lock.WithWait(time.Second)}, want: []error{lock.ErrTimeout, lock.ErrHeld}},
		"a retry of the client":    {options: []lock.Option{lock.WithRetry(lock.RetryPolicy{})}, want: []error{lock.ErrInvalid}},
		"no answer":                {hooks: failing(locktest.Acquire), want: []error{lock.ErrUnavailable}},
		"no answer to the reading": {hooks: failing(locktest.Get), want: []error{lock.ErrUnavailable}},
		"a grant that another call has ended before the last one": {
			hooks: func(service *locktest.Backend) locktest.Hooks {
				hooks := unwatched
				hooks.After = func(ctx context.Context, call locktest.Call) error {
					if call.Verb == locktest.Acquire && call.Key.Bare() == "d" {
						return service.ForceRelease(ctx, "default", v1alpha1.FullKeyOf("c"), "stuck")
					}
					return nil
				}
				return hooks
			},
			want: []error{lock.ErrForceReleased},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				client := lock.NewClient(service, "default")
				keys := []string{"d", "c"}
				if test.hooks == nil {
					other, err := client.Acquire(t.Context(), "d")
					if err != nil {
						t.Fatal(err)
					}
					defer mustRelease(t, other)
				} else {
					service.SetHooks(test.hooks(service))
				}
				_, err := client.AcquireAll(t.Context(), keys, test.options...)
				service.SetHooks(locktest.Hooks{})
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want one that matches %v", err, want)
					}
				}
				if isHeld(t, service, "c") {
					t.Error("c is left")
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
		keep := func(key string) *lock.Held {
			held, err := client.Acquire(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			return held
		}
		b := keep("b")
		got := make(chan error, 1)
		go func() {
			_, err := client.AcquireAll(t.Context(), []string{"a", "b"})
			got <- err
		}()
		pass(time.Second)
		a := keep("a")
		mustRelease(t, b)
		pass(time.Second)
		b = keep("b")
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

func TestWhichSetsAreInvalid(t *testing.T) {
	many := make([]string, lock.MaxTogether+1)
	for index := range many {
		many[index] = fmt.Sprint("k", index)
	}
	client := lock.NewClient(newBackend(), "default")
	for text, keys := range map[string][]string{
		"keys: Required value":                           nil,
		"keys: Too many: 17: must have at most 16 items": many,
		`keys[2]: Duplicate value: "a"`:                  {"a", "b", "a"},
		"spec.key":                                       {"a", ""},
	} {
		_, err := client.AcquireAll(t.Context(), keys)
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: got %v, want one that says %s", keys, err, text)
		}
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

func TestLocksAreAcquiredInOrderIfTheProgramAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "m", lock.WithLockOrder())
		under := func(client *lock.Client, held, wanted string) error {
			return lock.NewClient(service, "m").Do(t.Context(), held, func(ctx context.Context, _ *lock.Held) error {
				_, err := client.Acquire(ctx, wanted, lock.WithoutRenewal(), lock.WithTTL(time.Second))
				return err
			})
		}
		if err := under(client, "a", "b"); err != nil {
			t.Errorf("in order: %v", err)
		}
		if err := under(client, "c", "b"); !errors.Is(err, lock.ErrLockOrder) || !strings.Contains(err.Error(), "lock:c") {
			t.Errorf("out of order: %v", err)
		}
		if err := under(lock.NewClient(service, "l", lock.WithLockOrder()), "a", "z"); !errors.Is(err, lock.ErrLockOrder) {
			t.Errorf("of an earlier namespace: %v", err)
		}
		if err := under(lock.NewClient(newBackend(), "m", lock.WithLockOrder()), "c", "b"); err != nil {
			t.Errorf("of another backend: %v", err)
		}
		if err := under(lock.NewClient(service, "m"), "c", "b"); err != nil {
			t.Errorf("not asked for: %v", err)
		}
		pass(time.Second)
	})
}
