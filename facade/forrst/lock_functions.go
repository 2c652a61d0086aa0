package forrst

import (
	"context"
	"errors"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
)

// lockArguments are the arguments of the functions that manage held locks.
type lockArguments struct {
	// sent is the full key as the caller spells it, which results repeat.
	sent  string
	key   v1alpha1.FullKey
	owner string
}

// problem returns what the caller of a function is told about an error.
func (a *lockArguments) problem(kind callKind, err error) error {
	about := errorContext{kind: kind, key: a.sent, pointer: argumentsPointer}
	return about.problem(err)
}

type freeLock struct {
	Key    string `json:"key"`
	Locked bool   `json:"locked"`
}

type heldLock struct {
	Key    string `json:"key"`
	Locked bool   `json:"locked"`
	// Owner is empty if the caller may not know it.
	Owner        string `json:"owner,omitempty"`
	AcquiredAt   string `json:"acquired_at"`
	ExpiresAt    string `json:"expires_at"`
	TTLRemaining int64  `json:"ttl_remaining"`
}

func (c *call) prepareRelease() (Invocation, envelope.Errors) {
	arguments, problems := c.readLockArguments(true)
	c.about = arguments.key
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Release(ctx, &c.Caller, arguments.key, locks.OwnerClaim(arguments.owner)); err != nil {
			return nil, arguments.problem(lockFunction, err)
		}
		return wire.Released{Released: true, Key: arguments.sent}, nil
	}, problems
}

func (c *call) prepareForceRelease() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, false)
	c.about = arguments.key
	forced, err := c.config.Locks.PrepareForceRelease(&c.Caller, arguments.key, readReason(&fields))
	if err != nil {
		c.addInvalid(&problems, err, errorContext{kind: lockFunction, pointer: argumentsPointer})
	}
	forced.LimitToGrant(fields.PositiveInteger("fencing_token"))
	return func(ctx context.Context) (any, error) {
		if err := forced.Release(ctx); err != nil {
			return nil, arguments.problem(lockFunction, err)
		}
		return wire.Released{Released: true, Key: arguments.sent, Forced: true}, nil
	}, problems
}

func (c *call) prepareStatus() (Invocation, envelope.Errors) {
	arguments, problems := c.readLockArguments(false)
	c.about = arguments.key
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.GetWithOwner(ctx, &c.Caller, arguments.key)
		switch {
		case errors.Is(err, lock.ErrNotHeld):
			return freeLock{Key: arguments.sent}, nil
		case err != nil:
			return nil, err
		}
		status := statusOf(current, arguments.sent, c.config.Clock.Now())
		if !c.mayKnowOwner(ctx, current) {
			status.Owner = ""
		}
		return status, nil
	}, problems
}

// mayKnowOwner reports whether the caller may be shown the owner token of a lock: as its holder, or
// because it may end every lock of the namespace by force. It does not ask for the right to the
// one lock: that would cost a review for each lock that is looked at.
func (c *call) mayKnowOwner(ctx context.Context, current *v1alpha1.Lock) bool {
	return c.Caller.Owns(current) || c.config.Access.Authorize(ctx, &c.Caller, access.VerbForceRelease, nil) == nil
}

func (c *call) readLockArguments(withOwner bool) (lockArguments, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	return readHeldLock(&fields, withOwner), problems
}

// heldLock is the lock that the arguments of these functions name.
func (c *call) heldLock() v1alpha1.FullKey {
	arguments, _ := c.readLockArguments(false)
	return arguments.key
}

func readHeldLock(fields *envelope.Fields, withOwner bool) lockArguments {
	var arguments lockArguments
	arguments.sent, _ = fields.RequiredText("key")
	arguments.key = parseFullKey(arguments.sent)
	if withOwner {
		arguments.owner, _ = fields.RequiredText("owner")
	}
	return arguments
}

// readReason reads why something is done. An empty reason is none.
func readReason(fields *envelope.Fields) string {
	if string(fields.Raw("reason")) == `""` {
		return ""
	}
	reason, _ := fields.Text("reason")
	return reason
}

// parseFullKey reads a full key with either prefix or none (docs/forrst.md, section
// 12.3). Only one prefix is taken off: a key may itself begin with "lock:".
func parseFullKey(sent string) v1alpha1.FullKey {
	bare, hasPrefix := strings.CutPrefix(sent, "forrst_lock:")
	if !hasPrefix {
		bare = strings.TrimPrefix(sent, "lock:")
	}
	return v1alpha1.FullKeyOf(bare)
}

func statusOf(current *v1alpha1.Lock, sent string, now time.Time) heldLock {
	expires := current.Spec.ExpireTime.Time
	remaining := max(expires.Sub(now), 0)
	if ttl := current.Spec.TTL; ttl != nil {
		// The clock that stamped the lock may be ahead of this one.
		remaining = min(remaining, ttl.Duration)
	}
	return heldLock{
		Key:          sent,
		Locked:       true,
		Owner:        current.Spec.Owner,
		AcquiredAt:   envelope.FormatTimestamp(current.Spec.AcquireTime.Time),
		ExpiresAt:    envelope.FormatTimestamp(expires),
		TTLRemaining: int64(remaining / time.Second),
	}
}
