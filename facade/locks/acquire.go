package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

// DefaultMaxWait is how long a call may wait for a lock unless configured otherwise.
const DefaultMaxWait = time.Minute

// Acquisition is a request for a lock that has been validated, and cannot be changed any more.
type Acquisition struct {
	request lock.Request
	locks   *Locks
	caller  *access.Caller
	// named is the object that the caller names, which may not exist, or nil.
	named *rules.ValidReference
}

// Prepare validates a request of the caller, who becomes the holder. A lock that isKept does
// not end with its call, but with the object that it is held for: the one that the caller
// names, or else the Pod that its token is bound to. That Pod is known to exist, since the
// token was authenticated. The request must not name the hash of a [locktoken.Secret] as its owner. Prepare asks
// for nothing. The error is a [*lock.InvalidError].
func (l *Locks) Prepare(caller *access.Caller, request lock.Request, isKept bool) (Acquisition, error) {
	var problems field.ErrorList
	if rules.IsHashedOwner(request.Owner) {
		problems = append(problems, errReservedOwner)
	}
	return l.prepare(caller, request, isKept, problems)
}

// PrepareSecret is [Locks.Prepare] for a lock that the secret proves.
func (l *Locks) PrepareSecret(caller *access.Caller, request lock.Request, secret locktoken.Secret, isKept bool) (Acquisition, error) {
	request.Owner = ownerOf(secret)
	return l.prepare(caller, request, isKept, nil)
}

func (l *Locks) prepare(caller *access.Caller, request lock.Request, isKept bool, problems field.ErrorList) (Acquisition, error) {
	request.Holder, request.HolderUID = caller.Holder(), caller.User.GetUID()
	request.HolderRef, request.Door = request.HolderRef.DeepCopy(), l.door
	a := Acquisition{request: request, locks: l, caller: caller}
	mustExist := false
	if isKept {
		podNamespace, pod := holderref.PodOf(caller.User)
		isPodHere := pod != nil && podNamespace == caller.Namespace
		switch named := request.HolderRef; {
		case named == nil && isPodHere:
			a.request.HolderRef = pod
		case named == nil, isPodHere && *named == *pod:
		case l.holders == nil:
			problems = append(problems, field.Forbidden(rules.HolderRefPath, "objects are not looked for here; leave it out"))
		default:
			mustExist = true
		}
	}
	holder, err := a.request.Validate(l.limits)
	if invalid, ok := errors.AsType[*lock.InvalidError](err); ok {
		problems = append(problems, invalid.Problems...)
	}
	if len(problems) > 0 {
		return Acquisition{}, &lock.InvalidError{Problems: problems}
	}
	if mustExist {
		a.named = holder
	}
	return a, nil
}

// FullKey is the full key of the requested lock.
func (a *Acquisition) FullKey() v1alpha1.FullKey { return a.request.FullKey() }

// Scope is that of the requested lock.
func (a *Acquisition) Scope() v1alpha1.Scope { return a.request.Scope }

// Priority is that of the request. One above 0 needs [access.VerbPrioritize], also if the request does not wait.
func (a *Acquisition) Priority() int32 { return a.request.Priority }

// Connection is that which is to hold the requested lock. Empty if none is.
func (a *Acquisition) Connection() string { return a.request.Connection }

// TTL is how long the requested lock lives. Zero means the default.
func (a *Acquisition) TTL() time.Duration { return a.request.TTL }

// Acquire takes the lock for a call of the function, or waits for it as long as the permit of the caller
// allows, which has paid for that. What the permit has waited for its turns is a part of the wait. If the caller goes away
// meanwhile, no lock is left behind: the caller could not learn the owner token. It must not be called again for a request
// that waits. The error is a [*limits.Error] or one of [lock.Backend]'s Acquire.
func (a *Acquisition) Acquire(ctx context.Context, function string) (granted *v1alpha1.Lock, err error) {
	if a.request.Wait > 0 {
		err = a.caller.Permit.Wait(ctx, func(ctx context.Context) (err error) {
			a.request.Wait = max(0, a.request.Wait-a.caller.Permit.Waited())
			granted, err = a.ask(ctx)
			return err
		})
	} else {
		granted, err = a.ask(ctx)
	}
	return a.ended(ctx, function, granted, err)
}

// ended counts how the acquisition has ended, and takes back a lock whose caller has gone. The results are those of
// Acquire.
func (a *Acquisition) ended(ctx context.Context, function string, granted *v1alpha1.Lock, err error) (*v1alpha1.Lock, error) {
	if err == nil && ctx.Err() != nil {
		a.locks.TakeBack(ctx, function, a.caller, granted)
		granted, err = nil, ctx.Err()
	}
	a.locks.count(endOf(err))
	return granted, err
}

// endOf returns how the acquisition ended.
func endOf(err error) observe.Acquired {
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		if refused == limits.ErrDraining {
			return observe.Unavailable
		}
		return observe.Limited
	}
	return observe.EndOf(err)
}

// ask asks for the lock, if the object that the caller names exists. Either costs the API server a request.
func (a *Acquisition) ask(ctx context.Context) (granted *v1alpha1.Lock, err error) {
	if a.request.Wait == 0 { // One that waits costs a write when the lock is free, by its place in line.
		endTurn, err := a.locks.turn(ctx, a.caller, limits.Work)
		if err != nil {
			return nil, err
		}
		defer endTurn()
	}
	if a.named != nil {
		if err := a.checkNamed(ctx); err != nil {
			return nil, err
		}
	}
	granted, err = a.locks.backend.Acquire(ctx, a.caller.Namespace, a.request)
	return granted, errOfBackend(err)
}

// checkNamed returns an error unless the object that the caller names exists.
func (a *Acquisition) checkNamed(ctx context.Context) error {
	err := a.locks.holders.Check(ctx, a.caller.Namespace, *a.named)
	if err == nil || errors.Is(err, rules.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
}

// errOfBackend is the error of a call to which the backend has given that one, or nil.
func errOfBackend(err error) error {
	if full, ok := errors.AsType[*lock.LineFullError](err); ok {
		return errLineFull(full)
	}
	return err
}

// errLineFull refuses a caller for whom there is no place in line.
func errLineFull(full *lock.LineFullError) *limits.Error {
	refused := &limits.Error{IsCaller: true, Limit: "line_per_" + string(full.Bound)}
	switch full.Bound {
	case lock.LinePerLock:
		refused.Reason = fmt.Sprintf("The place in line would be %d, and at most %d callers may wait for one lock", full.Place(), full.Waiting)
	case lock.LinePerNamespace:
		refused.Reason = fmt.Sprintf("%d callers wait for locks of this namespace, which is as many as may", full.Waiting)
	case lock.LinePerHolder:
		refused.Reason = fmt.Sprintf("%d calls of the caller wait for locks, which is as many as may", full.Waiting)
	}
	return refused
}
