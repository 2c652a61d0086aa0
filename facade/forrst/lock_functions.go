package forrst

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
)

// namedLock is the lock that the arguments of a function name.
type namedLock struct {
	sent string // the full key as the caller spells it, which results repeat
	key  v1alpha1.FullKey
}

// readNamedLock reads the lock that the call is about.
func (c *call) readNamedLock(fields *envelope.Fields) namedLock {
	sent, _ := fields.RequiredText("key")
	c.about = parseFullKey(sent)
	return namedLock{sent, c.about}
}

// namedLock is the lock that the arguments name, or "" if they name none.
func (c *call) namedLock() v1alpha1.FullKey {
	fields := c.readArguments(new(envelope.Errors))
	sent, _ := fields.Text("key")
	return parseFullKey(sent)
}

// parseFullKey reads a full key with either prefix or none (docs/forrst.md, section 12.3). Only one prefix is taken off: a
// key may itself begin with "lock:". An empty text is the key of no lock.
func parseFullKey(sent string) v1alpha1.FullKey {
	if sent == "" {
		return ""
	}
	bare, hasPrefix := strings.CutPrefix(sent, "forrst_lock:")
	if !hasPrefix {
		bare = strings.TrimPrefix(sent, "lock:")
	}
	return v1alpha1.FullKeyOf(bare)
}

// problem returns what the caller of a function is told about an error.
func (l *namedLock) problem(kind callKind, err error) error {
	return (&errorContext{kind: kind, key: l.sent, pointer: argumentsPointer}).problem(err)
}

// readClaim reads what the caller shows of the grant. The functions of the protocol know no fencing token.
func readClaim(kind callKind, fields *envelope.Fields) locks.Claim {
	owner, _ := fields.RequiredText("owner")
	claim := locks.OwnerClaim(owner)
	if kind == extendedFunction {
		claim = claim.OfGrant(fields.PositiveInteger("fencing_token"))
	}
	return claim
}

func (c *call) prepareRenew() Invocation {
	fields := c.readArguments(&c.faults)
	named, claim := c.readNamedLock(&fields), readClaim(extendedFunction, &fields)
	renewal, err := c.config.Locks.PrepareRenew(&c.Caller, named.key, claim, fields.Duration("ttl", unbounded).Span())
	c.addInvalid(extendedFunction, argumentsPointer, err)
	return func(ctx context.Context) (any, error) {
		renewed, err := renewal.Renew(ctx)
		if err != nil {
			return nil, named.problem(extendedFunction, err)
		}
		return wire.Renewed{Key: named.sent, Renewed: true, Lock: wireLock(renewed)}, nil
	}
}

func (c *call) prepareRelease() Invocation         { return c.prepareReleaseOf(lockFunction) }
func (c *call) prepareExtendedRelease() Invocation { return c.prepareReleaseOf(extendedFunction) }

func (c *call) prepareReleaseOf(kind callKind) Invocation {
	fields := c.readArguments(&c.faults)
	named, claim := c.readNamedLock(&fields), readClaim(kind, &fields)
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Release(ctx, &c.Caller, named.key, claim); err != nil {
			return nil, named.problem(kind, err)
		}
		return wire.Released{Released: true, Key: named.sent}, nil
	}
}

func (c *call) prepareForceRelease() Invocation {
	fields := c.readArguments(&c.faults)
	named := c.readNamedLock(&fields)
	forced, err := c.config.Locks.PrepareForceRelease(&c.Caller, named.key, readReason(&fields))
	c.addInvalid(lockFunction, argumentsPointer, err)
	forced.LimitToGrant(fields.PositiveInteger("fencing_token"))
	return func(ctx context.Context) (any, error) {
		if err := forced.Release(ctx); err != nil {
			return nil, named.problem(lockFunction, err)
		}
		return wire.Released{Released: true, Key: named.sent, Forced: true}, nil
	}
}

// lockStatus is the result of status. Of a free lock it has the first two members.
type lockStatus struct {
	Key    string `json:"key"`
	Locked bool   `json:"locked"`
	// Owner is empty if the caller may not know it.
	Owner        string `json:"owner,omitempty"`
	AcquiredAt   string `json:"acquired_at,omitempty"`
	ExpiresAt    string `json:"expires_at,omitempty"`
	TTLRemaining *int64 `json:"ttl_remaining,omitempty"`
}

func (c *call) prepareStatus() Invocation {
	fields := c.readArguments(&c.faults)
	named := c.readNamedLock(&fields)
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.GetWithOwner(ctx, &c.Caller, named.key)
		switch {
		case errors.Is(err, lock.ErrNotHeld):
			return lockStatus{Key: named.sent}, nil
		case err != nil:
			return nil, err
		}
		spec := &current.Spec
		remaining := max(spec.ExpireTime.Sub(c.config.Clock.Now()), 0)
		if spec.TTL != nil {
			// The clock that stamped the lock may be ahead of this one.
			remaining = min(remaining, spec.TTL.Duration)
		}
		status := lockStatus{
			Key: named.sent, Locked: true, AcquiredAt: timestamp(spec.AcquireTime), ExpiresAt: timestamp(spec.ExpireTime),
			TTLRemaining: new(int64(remaining / time.Second)),
		}
		// Its holder may know the owner token, and who may end every lock of the namespace by force. The right to the one lock
		// is not asked for: that would cost a review for each lock that is looked at.
		if c.Caller.Owns(current) || c.config.Access.Authorize(ctx, &c.Caller, access.VerbForceRelease, nil) == nil {
			status.Owner = spec.Owner
		}
		return status, nil
	}
}

func (c *call) prepareExtendedStatus() Invocation {
	fields := c.readArguments(&c.faults)
	named := c.readNamedLock(&fields)
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.Get(ctx, &c.Caller, named.key)
		state := wire.State{Key: named.sent, CheckedAt: envelope.FormatTimestamp(c.config.Clock.Now())}
		switch {
		case errors.Is(err, lock.ErrNotHeld):
			state.Expired = errors.Is(err, lock.ErrExpired)
			return state, nil
		case err != nil:
			return nil, err
		}
		state.Locked, state.Lock = true, new(wireLock(current))
		return state, nil
	}
}

// wireLock describes a lock to a caller who knows, or is shown, the owner token.
func wireLock(current *v1alpha1.Lock) wire.Lock {
	spec := &current.Spec
	described := wire.Lock{
		FullKey: string(spec.FullKey()), Owner: spec.Owner, Scope: wire.ScopeOf(spec.Scope), Function: spec.Function,
		Holder: spec.Holder, Reason: spec.Reason, HolderRef: wire.NewHolderRef(spec.HolderRef),
		AcquiredAt: timestamp(spec.AcquireTime), RenewedAt: timestamp(spec.RenewTime), ExpiresAt: timestamp(spec.ExpireTime),
	}
	if spec.TTL != nil {
		described.TTL = new(envelope.NewDuration(spec.TTL.Duration))
	}
	if spec.ReleaseDelay != nil {
		described.ReleaseDelay = new(envelope.NewDuration(spec.ReleaseDelay.Duration))
	}
	if token, err := current.FencingToken(); err == nil {
		described.FencingToken = &token
	}
	return described
}

func timestamp(at *v1alpha1.Timestamp) string {
	if at == nil {
		return envelope.FormatTimestamp(time.Time{})
	}
	return envelope.FormatTimestamp(at.Time)
}

func (c *call) prepareList() Invocation {
	fields := c.readArguments(&c.faults)
	var request lock.PageRequest
	request.Owner, _ = fields.Text("owner")
	if len(request.Owner) > v1alpha1.MaxOwnerBytes {
		fields.Fail("owner", fmt.Sprintf("must be at most %d bytes", v1alpha1.MaxOwnerBytes))
	}
	request.Continue, _ = fields.Text("continue")
	isPaged := fields.Raw("limit") != nil || request.Continue != ""
	request.Limit = readLimit(&fields, wire.MaxListed)
	return func(ctx context.Context) (any, error) {
		list, err := c.list(ctx, request, isPaged)
		if err != nil {
			return nil, (&errorContext{kind: extendedFunction, pointer: argumentsPointer}).problem(err)
		}
		return c.encodeList(list)
	}
}

// readLimit reads how many elements a list has at most.
func readLimit(fields *envelope.Fields, most int64) int {
	limit := fields.PositiveInteger("limit")
	if limit > most {
		fields.Fail("limit", fmt.Sprintf("must be at most %d", most))
	}
	if limit == 0 {
		limit = most
	}
	return int(limit)
}

// encodeList encodes a result, and takes the room for it until it is sent, which the caller can delay.
func (c *call) encodeList(list any) (any, error) {
	encoded, err := envelope.Encode(list)
	if err == nil {
		err = c.Body.Take(2 * int64(len(encoded))) // The envelope is another copy.
	}
	return encoded, err
}

// maxWholePages bounds a list that is not asked for in pages: to 2,000 locks, and 1 MiB of their texts.
const maxWholePages = 4

// list lists the locks of a page or, unless that is asked for, all of them: a caller that does not know of pages must not
// take a part for the whole.
func (c *call) list(ctx context.Context, request lock.PageRequest, isPaged bool) (wire.Locks, error) {
	list := wire.Locks{Locks: []wire.ListedLock{}}
	for read := range maxWholePages {
		if read > 0 {
			if err := c.Caller.Permit.Spend(ctx, c.function.cost); err != nil {
				return wire.Locks{}, err
			}
		}
		page, err := c.config.Locks.ListPage(ctx, &c.Caller, request)
		if err != nil {
			return wire.Locks{}, err
		}
		for i := range page.Locks {
			list.Locks = append(list.Locks, wire.ListedLock{Key: page.Locks[i].Spec.Key, Lock: wireLock(&page.Locks[i])})
		}
		if isPaged || page.Continue == "" {
			list.Continue = page.Continue
			return list, nil
		}
		request.Continue = page.Continue
	}
	problem := envelope.Error{Code: envelope.InvalidArguments, Message: fmt.Sprintf(
		"there are too many locks for one answer: send a limit of at most %d, and then the continue of each answer", wire.MaxListed)}
	return wire.Locks{}, envelope.Errors{problem.At(argumentsPointer + "/limit")}
}

func (c *call) prepareWaiters() Invocation {
	fields := c.readArguments(&c.faults)
	sent, _ := fields.Text("key")
	key := parseFullKey(sent)
	c.about = key
	limit := readLimit(&fields, wire.MaxWaiters)
	return func(ctx context.Context) (any, error) {
		waiting, more, err := c.config.Locks.Waiters(ctx, &c.Caller, key, limit)
		if err != nil {
			return nil, err
		}
		list := wire.Waiters{Waiters: make([]wire.Waiter, 0, len(waiting)), More: more}
		for index := range waiting {
			list.Waiters = append(list.Waiters, wireWaiter(&waiting[index]))
		}
		return c.encodeList(list)
	}
}

func wireWaiter(waiter *lock.Waiter) wire.Waiter {
	described := wire.Waiter{
		Key: waiter.Key, FullKey: string(waiter.FullKey()), Scope: wire.ScopeOf(waiter.Scope), Function: waiter.Function,
		Place: waiter.Place, Priority: waiter.Priority, Holder: waiter.Holder, Reason: waiter.Reason,
		HolderRef: wire.NewHolderRef(waiter.HolderRef), Door: waiter.Door, Since: envelope.FormatTimestamp(waiter.Since),
	}
	if !waiter.Until.IsZero() {
		described.Until = envelope.FormatTimestamp(waiter.Until)
	}
	return described
}
