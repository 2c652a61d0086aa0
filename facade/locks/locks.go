package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

// HolderChecker looks for the objects that callers name as holders. The error matches
// [lock.ErrInvalid] if there is no such object.
type HolderChecker interface {
	Check(ctx context.Context, namespace string, holder rules.ValidReference) error
}

// Options configures [Locks].
type Options struct {
	// Backend carries out what callers ask for. Its Release bounds its time by itself: it
	// goes on when the caller has gone. Required.
	Backend lock.Backend
	// Limits bounds what callers may ask for. Required.
	Limits rules.Limits
	// Holders looks for the objects that callers name. Nil means that they may name none.
	Holders HolderChecker
	// Logger gets what goes wrong when a lock is released after its call. Zero discards.
	Logger logr.Logger
	// Clock measures for how long sets of locks wait, and when to renew what they keep. Nil means the real clock.
	Clock clock.Clock
}

// Locks are the locks that doors serve. It is safe for concurrent use.
type Locks struct {
	backend lock.Backend
	limits  rules.Limits
	holders HolderChecker
	logger  logr.Logger
	turns   *limits.Turns
	clock   clock.Clock
	door    string
	count   func(observe.Acquired)
}

// New returns the locks of a backend, or an error that says which option is missing.
func New(options Options) (*Locks, error) {
	switch {
	case options.Backend == nil:
		return nil, errors.New("facade: a lock backend is required")
	case options.Limits.MaxTTL <= 0:
		return nil, errors.New("facade: the maximum ttl must be more than zero")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Locks{
		backend: options.Backend, limits: options.Limits, holders: options.Holders, logger: options.Logger,
		turns: limits.NewTurns(clock.RealClock{}), clock: options.Clock,
		count: func(observe.Acquired) {},
	}, nil
}

// Through returns the same locks for one door, with a function that is called with the end of each request for
// a lock. The name of the door tells those who look at the waiters how each came.
func (l *Locks) Through(door string, count func(observe.Acquired)) *Locks {
	through := *l
	through.door, through.count = door, count
	return &through
}

// turn waits until a call of the caller may ask the API server, see [limits.Turns]. What is stamped is stamped afterwards.
// Callers that are not authenticated are not told apart.
func (l *Locks) turn(ctx context.Context, caller *access.Caller, cost limits.Cost) (end func(), err error) {
	if !caller.IsAuthenticated {
		return func() {}, nil
	}
	return l.turns.Begin(ctx, limits.TenantOf(caller.Holder()), cost)
}

// MaxTTL is the longest ttl that is granted.
func (l *Locks) MaxTTL() time.Duration { return l.limits.MaxTTL }

// Renewal is a renewal that has been validated.
type Renewal struct {
	locks  *Locks
	caller *access.Caller
	key    v1alpha1.FullKey
	claim  Claim
	ttl    time.Duration
}

// PrepareRenew validates the ttl of a renewal. Zero means the ttl that the lock has. Nothing is done
// yet. The error is a [*lock.InvalidError].
func (l *Locks) PrepareRenew(caller *access.Caller, key v1alpha1.FullKey, claim Claim, ttl time.Duration) (Renewal, error) {
	if err := l.limits.ValidateTTL(ttl); err != nil {
		return Renewal{}, err
	}
	return Renewal{locks: l, caller: caller, key: key, claim: claim, ttl: ttl}, nil
}

// Renew replaces the remaining time of a lock of the caller by a whole ttl, see [lock.Backend].
func (r *Renewal) Renew(ctx context.Context) (*v1alpha1.Lock, error) {
	endTurn, err := r.locks.turn(ctx, r.caller, limits.Upkeep)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	return r.locks.backend.Renew(ctx, r.caller.Namespace, r.key, r.claim.proof(r.caller), r.ttl)
}

// Release ends a lock of the caller, see [lock.Backend].
func (l *Locks) Release(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey, claim Claim) error {
	endTurn, err := l.turn(context.WithoutCancel(ctx), caller, limits.Upkeep) // As the backend's goes on when the caller has gone.
	if err != nil {
		return err
	}
	defer endTurn()
	return l.backend.Release(ctx, caller.Namespace, key, claim.proof(caller))
}

// ReleaseAfter ends the lock of a function that is over. It goes on when the caller has
// gone. Its failure must not change the answer, which is why it is logged here: the function
// has done its work, and the lock ends with its ttl.
func (l *Locks) ReleaseAfter(ctx context.Context, function string, caller *access.Caller, key v1alpha1.FullKey, owner string) error {
	return l.releaseAfter(ctx, function, caller, key, caller.Proof(owner))
}

// TakeBack ends a grant of which the caller is not told, unless the caller has learnt of it through
// another replica and has renewed it. A failure is logged.
func (l *Locks) TakeBack(ctx context.Context, function string, caller *access.Caller, granted *v1alpha1.Lock) {
	proof := caller.Proof(granted.Spec.Owner)
	proof.IsUnrenewed = true
	// A repeated acquisition may have the same owner token.
	proof.FencingToken, _ = granted.FencingToken()
	_ = l.releaseAfter(ctx, function, caller, granted.Spec.FullKey(), proof)
}

func (l *Locks) releaseAfter(ctx context.Context, function string, caller *access.Caller, key v1alpha1.FullKey, proof lock.Proof) error {
	err := l.backend.Release(context.WithoutCancel(ctx), caller.Namespace, key, proof)
	if err == nil {
		return nil
	}
	log := l.logger.WithValues("namespace", caller.Namespace, "lock", string(key), "function", function)
	if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
		log.Info("Lock ended before the function that ran inside it", "reason", err.Error())
	} else {
		log.Error(err, "Failed to release a lock after its function")
	}
	return err
}

// GetWithOwner returns a lock that is held, with its owner token, to any caller; otherwise
// the error matches [lock.ErrNotHeld].
func (l *Locks) GetWithOwner(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	endTurn, err := l.turn(ctx, caller, limits.Work)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	return l.backend.Get(ctx, caller.Namespace, key)
}

// Get is [Locks.GetWithOwner] without the owner token of another holder.
func (l *Locks) Get(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	current, err := l.GetWithOwner(ctx, caller, key)
	if err != nil || caller.Owns(current) {
		return current, err
	}
	// The backend's object must not be changed.
	hidden := *current
	hidden.Spec.Owner = ""
	return &hidden, nil
}

// ListPage returns a part of the held locks of the caller's namespace, see [lock.Pager]. An owner token
// is half of what it takes to release a lock: the page shows only the one that the request names, of
// locks of the caller. So callers cannot try out the tokens of other holders.
//
// The page counts as a list of the caller, and what it takes beyond one request to the API server against
// the caller's rate. The error may be a [*limits.Error].
func (l *Locks) ListPage(ctx context.Context, caller *access.Caller, request lock.PageRequest) (page lock.Page, err error) {
	end, err := caller.Permit.BeginList()
	if err != nil {
		return lock.Page{}, err
	}
	defer end()
	endTurn, err := l.turn(ctx, caller, limits.Work)
	if err != nil {
		return lock.Page{}, err
	}
	defer endTurn()
	request.MayReadMore = func() bool { return caller.Permit.Spend(ctx, limits.Work) == nil }
	if pager, ok := l.backend.(lock.Pager); ok {
		page, err = pager.ListPage(ctx, caller.Namespace, request)
	} else {
		var held []v1alpha1.Lock
		if held, err = l.backend.List(ctx, caller.Namespace, lock.Filter{Owner: request.Owner}); err == nil {
			page, err = lock.PageOf(held, request)
		}
	}
	if request.Owner != "" {
		page.Locks = slices.DeleteFunc(page.Locks, func(held v1alpha1.Lock) bool { return !caller.Owns(&held) })
	}
	for index := range page.Locks {
		page.Locks[index].Spec.Owner = request.Owner
	}
	return page, err
}

// Stream shows the locks of the caller's namespace or, unless the key is empty, one of them, with
// their owner tokens, see [lock.Streamer].
func (l *Locks) Stream(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey) (lock.Stream, error) {
	streamer, ok := l.backend.(lock.Streamer)
	if !ok {
		return lock.Stream{}, fmt.Errorf("stream the locks of namespace %s: %w", caller.Namespace, errors.ErrUnsupported)
	}
	return streamer.Stream(ctx, caller.Namespace, key)
}
