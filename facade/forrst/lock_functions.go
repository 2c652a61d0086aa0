package forrst

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// lockArguments are the arguments of the functions that manage held locks.
type lockArguments struct {
	// sent is the full key as the caller spells it, which results repeat.
	sent  string
	key   v1alpha1.FullKey
	owner string
}

type freeLock struct {
	Key    string `json:"key"`
	Locked bool   `json:"locked"`
}

type heldLock struct {
	Key          string `json:"key"`
	Locked       bool   `json:"locked"`
	Owner        string `json:"owner"`
	AcquiredAt   string `json:"acquired_at"`
	ExpiresAt    string `json:"expires_at"`
	TTLRemaining int64  `json:"ttl_remaining"`
}

func (c *call) prepareRelease() (Invocation, envelope.Errors) {
	arguments, problems := c.readLockArguments(true)
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Release(ctx, c.caller.Namespace, arguments.key, c.proof(arguments.owner)); err != nil {
			return nil, releaseProblem(err, arguments.sent)
		}
		return wire.Released{Released: true, Key: arguments.sent}, nil
	}, problems
}

func (c *call) prepareForceRelease() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := readHeldLock(&fields, false)
	before := len(problems)
	reason := readReason(&fields)
	if c.needsReason() && len(problems) == before && strings.TrimSpace(reason) == "" {
		fields.Fail("reason", "must say why the lock is taken from its holder")
	}
	return func(ctx context.Context) (any, error) {
		ctx = lock.ContextWithUser(ctx, c.caller.holder())
		if err := c.config.Locks.ForceRelease(ctx, c.caller.Namespace, arguments.key, reason); err != nil {
			return nil, releaseProblem(err, arguments.sent)
		}
		return wire.Released{Released: true, Key: arguments.sent, Forced: true}, nil
	}, problems
}

// needsReason reports whether a lock is broken with a reason only, as it is with kubectl.
// The protocol knows no such argument, so it is asked for only where it goes on record
// with the one who gave it.
func (h *Handler) needsReason() bool { return h.config.Access != nil }

func (c *call) prepareStatus() (Invocation, envelope.Errors) {
	arguments, problems := c.readLockArguments(false)
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.Get(ctx, c.caller.Namespace, arguments.key)
		switch {
		case errors.Is(err, lock.ErrNotHeld):
			return freeLock{Key: arguments.sent}, nil
		case err != nil:
			return nil, err
		}
		return statusOf(current, arguments.sent, c.config.Clock.Now()), nil
	}, problems
}

func (c *call) readLockArguments(withOwner bool) (lockArguments, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	return readHeldLock(&fields, withOwner), problems
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

// maxReason is the longest reason, in characters: that of spec.reason.
const maxReason = 1024

// readReason reads why something is done. An empty reason is none.
func readReason(fields *envelope.Fields) string {
	if string(fields.Raw("reason")) == `""` {
		return ""
	}
	reason, _ := fields.Text("reason")
	if utf8.RuneCountInString(reason) > maxReason {
		fields.Fail("reason", fmt.Sprintf("must be at most %d characters", maxReason))
	}
	return reason
}

// parseFullKey reads a full key with either prefix or none (section 12.3). Only one
// prefix is taken off: a key may itself begin with "lock:".
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
		// The clock of whoever stamped the lock may be ahead of this one.
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

// releaseProblem never tells who holds the lock.
func releaseProblem(err error, sent string) error {
	problem := envelope.Error{Code: envelope.LockNotFound, Message: "Lock does not exist"}
	switch {
	case errors.Is(err, lock.ErrNotHeld):
	case errors.Is(err, lock.ErrOwnerMismatch):
		problem.Code, problem.Message = envelope.LockOwnershipMismatch, "Lock is owned by a different process"
	default:
		return err
	}
	problem = problem.With(map[string]string{"key": sent})
	return &problem
}
