package locks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/observe"
)

// slow is a backend that answers nothing until it is told to. It counts what it was asked.
type slow struct {
	lock.Backend

	asked   atomic.Int32
	answers chan struct{}
}

func (s *slow) answer() error {
	s.asked.Add(1)
	<-s.answers
	return lock.ErrNotHeld
}

func (s *slow) Acquire(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
	return nil, s.answer()
}

func (s *slow) Renew(context.Context, string, v1alpha1.FullKey, lock.Proof, time.Duration) (*v1alpha1.Lock, error) {
	return nil, s.answer()
}

func (s *slow) Get(context.Context, string, v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	return nil, s.answer()
}

func (s *slow) List(context.Context, string, lock.Filter) ([]v1alpha1.Lock, error) {
	return nil, s.answer()
}

func (s *slow) Release(context.Context, string, v1alpha1.FullKey, lock.Proof) error {
	return s.answer()
}

func (s *slow) ForceRelease(context.Context, string, v1alpha1.FullKey, string, ...lock.Precondition) error {
	return s.answer()
}

// While two tenants ask, the backend has one call of each at a time, through whichever door. So nothing is stamped before it
// is the call's turn. Acquires that may wait take none.
func TestCallsOfTenantsTakeTurns(t *testing.T) {
	const mayWait = "acquire that may wait"
	operations := map[string]func(context.Context, *locks.Locks, *access.Caller) error{
		"acquire": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			acquisition, err := l.Prepare(caller, aMinute, true)
			if err == nil {
				_, err = acquisition.Acquire(ctx, "f")
			}
			return err
		},
		mayWait: func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			request := aMinute
			request.Wait = time.Minute
			acquisition, err := l.Prepare(caller, request, true)
			if err == nil {
				_, err = acquisition.Acquire(ctx, "f")
			}
			return err
		},
		"renew": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			renewal, err := l.PrepareRenew(caller, "lock:k", locks.OwnerClaim("o"), 0)
			if err == nil {
				_, err = renewal.Renew(ctx)
			}
			return err
		},
		"release": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			return l.Release(ctx, caller, "lock:k", locks.OwnerClaim("o"))
		},
		"force": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			release, err := l.PrepareForceRelease(caller, "lock:k", "stuck")
			if err == nil {
				err = release.Release(ctx)
			}
			return err
		},
		"get": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			_, err := l.Get(ctx, caller, "lock:k")
			return err
		},
		"list": func(ctx context.Context, l *locks.Locks, caller *access.Caller) error {
			_, err := l.ListPage(ctx, caller, lock.PageRequest{Limit: 1})
			return err
		},
	}
	for name, operation := range operations {
		for isAuthenticated, want := range map[bool]int32{true: 2, false: 3} {
			if name == mayWait {
				want = 3
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backend := &slow{Backend: locktest.New(), answers: make(chan struct{})}
					l, _ := newLocks(t, backend)
					of := func(namespace string) *access.Caller {
						return &access.Caller{
							User: &user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":worker"}, Namespace: "default", IsAuthenticated: isAuthenticated,
							Permit: poorPermit(t, 100),
						}
					}
					shop, payments := l.Through("rest", nil), l.Through("forrst", nil)
					go func() { _ = shop.Release(t.Context(), of("shop"), "lock:k", locks.OwnerClaim("o")) }()
					go func() { _ = payments.Release(t.Context(), of("payments"), "lock:k", locks.OwnerClaim("o")) }()
					synctest.Wait()
					go func() { _ = operation(t.Context(), l.Through("rest", func(observe.Acquired) {}), of("payments")) }()
					synctest.Wait()
					if asked := backend.asked.Load(); asked != want {
						t.Errorf("the backend was asked %d times, want %d", asked, want)
					}
					close(backend.answers)
					synctest.Wait()
					if asked := backend.asked.Load(); asked != 3 {
						t.Errorf("the backend was asked %d times at last, want 3", asked)
					}
				})
			})
		}
	}
}
