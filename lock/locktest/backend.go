package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Backend is a [lock.Backend] in memory. Create one with [New]; the zero value is not usable. Safe
// for concurrent use.
type Backend struct {
	clock  clock.WithTicker
	limits rules.Limits
	holder string
	// owner is the owner token of requests without one; empty means a new one for each.
	owner string

	mu sync.Mutex
	// version is the resourceVersion of the latest write to any lock.
	version       int64
	entries       map[types.NamespacedName]*entry
	streams       map[*stream]struct{}
	isUnavailable bool
	hooks         Hooks
	isRecording   bool
	calls         []Call
}

var (
	_ lock.Backend  = (*Backend)(nil)
	_ lock.Pager    = (*Backend)(nil)
	_ lock.Streamer = (*Backend)(nil)
)

// New returns a backend in which all locks are free.
func New(options ...Option) *Backend {
	backend := &Backend{
		clock:   clock.RealClock{},
		limits:  rules.DefaultLimits(),
		holder:  DefaultHolder,
		entries: map[types.NamespacedName]*entry{},
		streams: map[*stream]struct{}{},
	}
	for _, option := range options {
		option(backend)
	}
	return backend
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	call := Call{Verb: Renew, Namespace: namespace, Key: key, Proof: proof}
	return do(ctx, b, call, func(Hooks) (renewed *v1alpha1.Lock, err error) {
		err = b.withEntry(namespace, key, "renew", func(e *entry, now time.Time) error {
			if err := b.limits.ValidateTTL(ttl); err != nil {
				return err
			}
			next, err := rules.Renew(e.lock, proof, ttl, now)
			if err != nil {
				return err
			}
			b.store(e, next)
			renewed = next.DeepCopy()
			return nil
		})
		return renewed, err
	})
}

// Release implements [lock.Backend]. The first waiter gets the lock in the same write.
func (b *Backend) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	call := Call{Verb: Release, Namespace: namespace, Key: key, Proof: proof}
	_, err := do(ctx, b, call, func(Hooks) (struct{}, error) {
		return struct{}{}, b.withEntry(namespace, key, "release", func(e *entry, now time.Time) error {
			if err := rules.Release(e.lock, proof, now); err != nil {
				return err
			}
			b.release(e, now)
			return nil
		})
	})
	return err
}

// ForceRelease implements [lock.Backend]. Only the record of calls keeps the reason.
func (b *Backend) ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string, preconditions ...lock.Precondition) error {
	call := Call{Verb: ForceRelease, Namespace: namespace, Key: key, Reason: reason, Precondition: lock.PreconditionOf(preconditions)}
	_, err := do(ctx, b, call, func(Hooks) (struct{}, error) {
		return struct{}{}, b.withEntry(namespace, key, "force release of", func(e *entry, now time.Time) error {
			if err := rules.ForceRelease(e.lock, call.Precondition, now); err != nil {
				return err
			}
			b.remove(e)
			b.grantFirst(e, now, now)
			return nil
		})
	})
	return err
}

// Get implements [lock.Backend].
func (b *Backend) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	call := Call{Verb: Get, Namespace: namespace, Key: key}
	return do(ctx, b, call, func(Hooks) (found *v1alpha1.Lock, err error) {
		err = b.withEntry(namespace, key, "get", func(e *entry, now time.Time) error {
			switch {
			case e.lock == nil:
				return lock.ErrNotHeld
			case !e.isHeld(now):
				return lock.ErrExpired
			}
			found = e.lock.DeepCopy()
			return nil
		})
		return found, err
	})
}

// List implements [lock.Backend].
func (b *Backend) List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	return do(ctx, b, Call{Verb: List, Namespace: namespace}, func(Hooks) ([]v1alpha1.Lock, error) {
		return b.list(namespace, filter)
	})
}

func (b *Backend) list(namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isUnavailable {
		return nil, fmt.Errorf("list locks in namespace %s: %w", namespace, lock.ErrUnavailable)
	}
	now := b.clock.Now()
	for name, e := range b.entries {
		if name.Namespace == namespace {
			b.handleExpiry(e, now)
		}
	}
	return b.collect(func(e *entry) bool {
		return e.name.Namespace == namespace && e.isHeld(now) && (filter.Owner == "" || e.lock.Spec.Owner == filter.Owner)
	}), nil
}

// All returns the locks of all namespaces, sorted by namespace and name. Unlike [Backend.List] it
// includes expired locks, runs no hooks, is not recorded, and works during an outage.
func (b *Backend) All() []v1alpha1.Lock {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.collect(func(*entry) bool { return true })
}

// collect returns the locks that are wanted, sorted by namespace and name.
func (b *Backend) collect(isWanted func(*entry) bool) []v1alpha1.Lock {
	var found []v1alpha1.Lock
	for _, e := range b.entries {
		if e.lock != nil && isWanted(e) {
			found = append(found, *e.lock.DeepCopy())
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.Lock) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// withEntry runs a step on the entry of a lock, after handling an expiry that is due.
func (b *Backend) withEntry(namespace string, key v1alpha1.FullKey, operation string, step func(e *entry, now time.Time) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	operation = fmt.Sprintf("%s %s in namespace %s", operation, key, namespace)
	if b.isUnavailable {
		return fmt.Errorf("%s: %w", operation, lock.ErrUnavailable)
	}
	e := b.entry(namespace, key)
	defer b.deleteIfEmpty(e)
	now := b.clock.Now()
	b.handleExpiry(e, now)
	err := step(e, now)
	if err == nil || errors.Is(err, lock.ErrHeld) { // This names the lock itself.
		return err
	}
	return fmt.Errorf("%s: %w", operation, err)
}
