package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/together"
)

// Set is a request for several locks that has been validated: for all of them, or none.
type Set struct {
	// first is the acquisition of the first lock, which those of the others are like.
	first Acquisition
	// keys are in the order of the full keys.
	keys     []string
	isStrict bool
}

// PrepareSet validates a request for the locks of all keys, which have one owner token, as [Locks.Prepare] does for one lock
// that is kept. The key of the request is ignored. A strict set never keeps one lock while it waits for another. The error
// is a [*lock.InvalidError].
func (l *Locks) PrepareSet(caller *access.Caller, request lock.Request, keys []string, isStrict bool) (*Set, error) {
	request.Owner = cmp.Or(request.Owner, lock.NewOwner())
	return prepareSet(request, keys, isStrict, func(request lock.Request) (Acquisition, error) { return l.Prepare(caller, request, true) })
}

// PrepareSecretSet is [Locks.PrepareSet] for locks that one secret proves.
func (l *Locks) PrepareSecretSet(caller *access.Caller, request lock.Request, keys []string, secret locktoken.Secret, isStrict bool) (*Set, error) {
	return prepareSet(request, keys, isStrict, func(request lock.Request) (Acquisition, error) { return l.PrepareSecret(caller, request, secret, true) })
}

func prepareSet(request lock.Request, keys []string, isStrict bool, prepare func(lock.Request) (Acquisition, error)) (*Set, error) {
	acquisitions, problems := together.Order(request.Acquisition, keys)
	set := &Set{isStrict: isStrict}
	for number, acquisition := range acquisitions {
		request.Acquisition = acquisition
		prepared, err := prepare(request)
		if invalid, ok := errors.AsType[*lock.InvalidError](err); ok {
			if others := withoutKey(invalid.Problems); len(others) > 0 { // Those of the next locks are the same.
				problems = append(problems, others...)
				break
			}
		}
		if number == 0 {
			set.first = prepared
		}
		set.keys = append(set.keys, acquisition.Key)
	}
	if len(problems) > 0 {
		return nil, &lock.InvalidError{Problems: problems}
	}
	return set, nil
}

// withoutKey are the problems that are not those of the key, which [together.Order] has told.
func withoutKey(problems field.ErrorList) field.ErrorList {
	return problems.Filter(func(err error) bool {
		problem, ok := errors.AsType[*field.Error](err)
		return ok && problem.Field == "spec.key"
	})
}

// acquisition is that of one of the locks. One look for the object that the caller names is enough for all.
func (s *Set) acquisition(number int) Acquisition {
	acquisition := s.first
	if number > 0 {
		acquisition.request.Key, acquisition.named = s.keys[number], nil
	}
	return acquisition
}

// Keys are the keys of the locks, in the order of their full keys, which is that of the grants.
func (s *Set) Keys() []string { return s.keys }

// FullKeys are the full keys of the locks, in their order.
func (s *Set) FullKeys() []v1alpha1.FullKey {
	keys := make([]v1alpha1.FullKey, len(s.keys))
	for number := range s.keys {
		acquisition := s.acquisition(number)
		keys[number] = acquisition.FullKey()
	}
	return keys
}

// TTL is how long the requested locks live. Zero means the default.
func (s *Set) TTL() time.Duration { return s.first.TTL() }

// Priority is that of the request, see [Acquisition.Priority].
func (s *Set) Priority() int32 { return s.first.Priority() }

// Function is what the keys belong to, or empty.
func (s *Set) Function() string { return s.first.request.Function }

// LockError says at which lock of a set a request has failed.
type LockError struct {
	Scope         v1alpha1.Scope
	Function, Key string
	Err           error
}

// FullKey is the full key of the lock.
func (e *LockError) FullKey() v1alpha1.FullKey {
	return v1alpha1.NewFullKey(e.Scope, e.Function, e.Key)
}

// Error implements error.
func (e *LockError) Error() string { return fmt.Sprintf("%s: %s", e.FullKey(), e.Err) }

func errAt(held *v1alpha1.Lock, err error) *LockError {
	return &LockError{held.Spec.Scope, held.Spec.Function, held.Spec.Key, err}
}

// Unwrap implements the interface of [errors.Is].
func (e *LockError) Unwrap() error { return e.Err }

// Acquire takes all locks for a call of the function, as [together.Acquire] does, or waits for them as [Acquisition.Acquire]
// does. What it keeps while it waits it renews. The caller pays for each request to the API server. The error is as that of
// [Acquisition.Acquire], in a [*LockError] unless it is about no single lock, and then no lock is left behind. It matches
// [lock.ErrNotHeld] if a lock has ended before all others were granted, and [lock.ErrUnavailable] if one could not be
// released and stays for its ttl.
func (s *Set) Acquire(ctx context.Context, function string) (granted []*v1alpha1.Lock, err error) {
	all, caller := s.first.locks, s.first.caller
	taker := &setTaker{set: s, locks: all, caller: caller, function: function, paid: len(s.keys), came: all.clock.Now()}
	var grants []*keptGrant
	var failure error // Whatever else has ended the wait.
	acquire := func(ctx context.Context) error {
		grants, failure = taker.acquire(ctx)
		return failure
	}
	if s.first.request.Wait > 0 {
		err = caller.Permit.Wait(ctx, acquire)
	} else {
		err = acquire(ctx)
	}
	switch {
	case errors.Is(failure, errMayBeLeft):
		err = failure
	case ctx.Err() != nil:
		if err == nil {
			_ = all.takeBackAll(ctx, function, caller, grants)
		}
		err = ctx.Err()
	}
	all.count(endOf(err))
	if err != nil {
		return nil, err
	}
	for _, grant := range grants {
		granted = append(granted, grant.lock)
	}
	return granted, nil
}

// Outermost returns the lock of a set that was granted last, whose number fences all, and the one that expires first.
func Outermost(held []*v1alpha1.Lock) (last, first *v1alpha1.Lock) {
	last, first = held[0], held[0]
	var highest int64
	for _, each := range held {
		if number, err := each.FencingToken(); err == nil && number > highest {
			highest, last = number, each
		}
		if each.Spec.ExpireTime.Before(first.Spec.ExpireTime.Time) {
			first = each
		}
	}
	return last, first
}

// TakeBack ends grants of which the caller is not told; see [Locks.TakeBack].
func (s *Set) TakeBack(ctx context.Context, function string, granted []*v1alpha1.Lock) {
	grants := make([]*keptGrant, len(granted))
	for number, each := range granted {
		grants[number] = &keptGrant{lock: each, mayBeRenewed: rules.IsRenewed(each)}
	}
	_ = s.first.locks.takeBackAll(ctx, function, s.first.caller, grants)
}

// errMayBeLeft says that a grant of which the caller is not told may stay for its ttl.
var errMayBeLeft = fmt.Errorf("%w: a lock could not be released", lock.ErrUnavailable)

// takeBackAll ends grants of which the caller is not told, all at once. One that another call of the same request has renewed
// since is that one's: it may have told its caller.
func (l *Locks) takeBackAll(ctx context.Context, function string, caller *access.Caller, grants []*keptGrant) error {
	return errors.Join(AtOnce(len(grants), func(number int) error {
		given := grants[number].lock
		proof := proofOf(caller, given)
		if grants[number].mayBeRenewed {
			proof.ResourceVersion = given.ResourceVersion
		} else {
			proof.IsUnrenewed = true
		}
		err := l.releaseAfter(ctx, function, caller, given.Spec.FullKey(), proof)
		if err == nil || isOver(err) {
			return nil
		}
		return errAt(given, fmt.Errorf("%w: %s", errMayBeLeft, err.Error())) // Whatever the cause.
	})...)
}

func proofOf(caller *access.Caller, granted *v1alpha1.Lock) lock.Proof {
	proof := caller.Proof(granted.Spec.Owner)
	proof.FencingToken, _ = granted.FencingToken()
	return proof
}

// isOver reports whether a grant has ended, or is another call's.
func isOver(err error) bool {
	return errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)
}

// AtOnce does the same with each number below count at once, and returns the errors by number. A panic is one.
func AtOnce(count int, do func(number int) error) []error {
	failures := make([]error, count)
	var calls sync.WaitGroup
	for number := range count {
		calls.Go(func() { failures[number] = recovered(func() error { return do(number) }) })
	}
	calls.Wait()
	return failures
}

func recovered(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v at %s", cause, debug.Stack())
		}
	}()
	return do()
}

// setTaker takes the locks of a set. It implements [together.Taker].
type setTaker struct {
	set      *Set
	locks    *Locks
	caller   *access.Caller
	function string
	// paid is how many tries and waits are paid for.
	paid int
	came time.Time
	// kept are the grants that the set has.
	kept []*keptGrant
}

// keptGrant is a grant of a set that is not complete yet.
type keptGrant struct {
	// lock is as it was stored last.
	lock *v1alpha1.Lock
	// due is when to renew it.
	due time.Time
	// mayBeRenewed says that it was asked to be renewed: without an answer, its state is not known.
	mayBeRenewed bool
}

// renewAfter is the part of the ttl after which a set renews what it keeps: one in so many.
const renewAfter = 3

// acquire pays for what is sure to be asked for, and acquires the locks. The first write was paid for when the call began; at
// the end, each lock but the last is read.
func (t *setTaker) acquire(ctx context.Context) ([]*keptGrant, error) {
	for range 2 * (len(t.set.keys) - 1) {
		if err := t.caller.Permit.Pay(ctx); err != nil {
			return nil, err
		}
	}
	limits := together.Limits{Wait: t.set.first.request.Wait, IsStrict: t.set.isStrict}
	if limits.Wait > 0 {
		limits.Wait = max(0, limits.Wait-t.caller.Permit.Waited())
	}
	return together.Acquire(ctx, t.locks.clock, t, len(t.set.keys), limits)
}

func (t *setTaker) dueOf(held *v1alpha1.Lock) time.Time {
	return t.locks.clock.Now().Add(held.Spec.TTL.Duration / renewAfter)
}

// Take implements [together.Taker].
func (t *setTaker) Take(ctx context.Context, number int, wait time.Duration) (*keptGrant, error) {
	acquisition := t.set.acquisition(number)
	// The set has the place of its arrival in each queue.
	acquisition.request.Wait, acquisition.request.Since = wait, t.came
	granted, err := t.take(ctx, &acquisition)
	if err != nil {
		if _, isNamed := errors.AsType[*LockError](err); !isNamed {
			err = &LockError{acquisition.request.Scope, acquisition.request.Function, acquisition.request.Key, err}
		}
		return nil, err
	}
	grant := &keptGrant{lock: granted, due: t.dueOf(granted)}
	t.kept = append(t.kept, grant)
	return grant, nil
}

func (t *setTaker) take(ctx context.Context, acquisition *Acquisition) (granted *v1alpha1.Lock, err error) {
	outer := ctx
	if len(t.kept) > 0 {
		waiting, lose := context.WithCancelCause(ctx)
		var renewals sync.WaitGroup
		renewals.Go(func() { lose(recovered(func() error { return t.keep(waiting) })) })
		defer func() {
			if err != nil && outer.Err() == nil && waiting.Err() != nil {
				err = context.Cause(waiting)
			}
			lose(nil)
			renewals.Wait()
		}()
		ctx = waiting
	}
	if t.paid--; t.paid < 0 {
		began := t.locks.clock.Now()
		if err := t.caller.Permit.Pay(ctx); err != nil {
			return nil, err
		}
		acquisition.request.Wait = max(0, acquisition.request.Wait-t.locks.clock.Since(began))
	}
	return acquisition.ask(ctx)
}

// keep renews what the set has until ctx ends, or that fails.
func (t *setTaker) keep(ctx context.Context) error {
	for {
		next := slices.MinFunc(t.kept, func(a, b *keptGrant) int { return a.due.Compare(b.due) })
		timer := t.locks.clock.NewTimer(next.due.Sub(t.locks.clock.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
		if err := t.renew(ctx, next); err != nil {
			return errAt(next.lock, err)
		}
	}
}

// renew renews a grant, unless another call of the request has.
func (t *setTaker) renew(ctx context.Context, grant *keptGrant) error {
	if err := t.caller.Permit.Spend(ctx, limits.Upkeep); err != nil {
		return err
	}
	proof := proofOf(t.caller, grant.lock)
	proof.ResourceVersion = grant.lock.ResourceVersion
	grant.mayBeRenewed = true
	// It is completed if the wait ends meanwhile, so that its answer is known if there is one.
	renewed, err := t.locks.backend.Renew(context.WithoutCancel(ctx), t.caller.Namespace, grant.lock.Spec.FullKey(), proof, 0)
	if errors.Is(err, lock.ErrStale) {
		return fmt.Errorf("%w: it was changed while others were waited for", lock.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	grant.lock, grant.due = renewed, t.dueOf(renewed)
	return nil
}

// Confirm implements [together.Taker].
func (t *setTaker) Confirm(ctx context.Context, grant *keptGrant) error {
	current, err := t.locks.backend.Get(ctx, t.caller.Namespace, grant.lock.Spec.FullKey())
	if err != nil {
		return errAt(grant.lock, err)
	}
	granted, _ := grant.lock.FencingToken()
	if found, err := current.FencingToken(); err != nil || found != granted {
		return errAt(grant.lock, lock.ErrNotHeld)
	}
	return nil
}

// GiveBack implements [together.Taker].
func (t *setTaker) GiveBack(ctx context.Context, grants []*keptGrant) error {
	t.kept = nil
	return t.locks.takeBackAll(ctx, t.function, t.caller, grants)
}
