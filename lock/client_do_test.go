package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

var errWork = errors.New("work failed")

func failRelease(_ *testing.T, service *locktest.Backend) {
	service.SetHooks(before(locktest.Failing(locktest.Release, lock.ErrUnavailable)))
}

func TestDo(t *testing.T) {
	tests := map[string]struct {
		// hinder runs before the work.
		hinder func(*testing.T, *locktest.Backend)
		work   error
		want   []error
	}{
		"success":               {},
		"the error of the work": {work: errWork, want: []error{errWork}},
		"a release without answer": {
			hinder: failRelease,
			want:   []error{lock.ErrUnavailable},
		},
		"both": {
			hinder: failRelease,
			work:   errWork, want: []error{errWork, lock.ErrUnavailable},
		},
		"a loss that the work did not notice": {
			hinder: forceRelease,
			want:   []error{lock.ErrForceReleased},
		},
		"a loss and the error of the work": {
			hinder: forceRelease,
			work:   errWork, want: []error{errWork, lock.ErrForceReleased},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				err := lock.NewClient(service, "default").Do(t.Context(), "billing:report", func(context.Context, *lock.Held) error {
					if test.hinder != nil {
						test.hinder(t, service)
					}
					return test.work
				})
				if len(test.want) == 0 && err != nil {
					t.Errorf("got %v, want nil", err)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("got %v, want one that matches %v", err, want)
					}
				}
				if got := requests(service); !cmp.Equal(got[:1], []locktest.Verb{locktest.Acquire}) {
					t.Errorf("requests %v", got)
				}
			})
		})
	}
}

func TestDoEndsItsContextWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		err := lock.NewClient(service, "default").Do(t.Context(), "billing:report", func(ctx context.Context, held *lock.Held) error {
			takeOver(t, service, "rival") // another caller
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrTakenOver) || !errors.Is(held.Err(), cause) {
				t.Errorf("cause %v, error %v, want ErrTakenOver", cause, held.Err())
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrTakenOver) {
			t.Errorf("got %v, want the error of the work and why it was stopped", err)
		}
	})
}

func TestDoReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default")
		isFree := func(after string) {
			t.Helper()
			if _, err := service.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("after %s: get returns %v, want ErrNotHeld", after, err)
			}
		}

		func() {
			defer func() {
				if recovered := recover(); recovered != "boom" {
					t.Errorf("recovered %v, want the panic of the work", recovered)
				}
			}()
			_ = client.Do(t.Context(), "billing:report", func(context.Context, *lock.Held) error { panic("boom") })
		}()
		isFree("a panic")

		ctx, cancel := context.WithCancel(t.Context())
		err := client.Do(ctx, "billing:report", func(ctx context.Context, _ *lock.Held) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if err != context.Canceled { //nolint:errorlint // nothing is to be wrapped around the error of the work
			t.Errorf("got %v, want just the error of the work", err)
		}
		isFree("a cancellation")

		err = client.Do(t.Context(), "billing:report", func(ctx context.Context, held *lock.Held) error { return held.Release(ctx) })
		if err != nil {
			t.Errorf("work that releases: %v", err)
		}
		isFree("a release by the work")
	})
}

func TestDoWithoutTheLockDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lock.NewClient(newBackend(), "default")
		defer mustRelease(t, mustHold(t, client))
		err := client.Do(t.Context(), "billing:report", func(context.Context, *lock.Held) error {
			t.Error("called")
			return nil
		}, lock.WithWait(0))
		if !errors.Is(err, lock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
	})
}
