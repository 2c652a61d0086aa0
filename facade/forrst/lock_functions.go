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
		if err := c.config.Locks.Release(ctx, &c.caller, arguments.key, arguments.owner); err != nil {
			return nil, arguments.problem(lockFunction, err)
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
	if utf8.RuneCountInString(reason) > maxReason {
		fields.Fail("reason", tooLongReason)
	}
	if c.needsReason() && len(problems) == before && strings.TrimSpace(reason) == "" {
		fields.Fail("reason", "must say why the lock is taken from its holder")
	}
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.ForceRelease(ctx, &c.caller, arguments.key, reason); err != nil {
			return nil, arguments.problem(lockFunction, err)
		}
		return wire.Released{Released: true, Key: arguments.sent, Forced: true}, nil
	}, problems
}

// needsReason reports whether a forced release needs a reason, as it does with kubectl. The
// protocol knows no such argument, so it is required only where it is recorded with the
// identity of the caller.
func (h *Handler) needsReason() bool { return h.config.Access.AuthenticatesCallers() }

func (c *call) prepareStatus() (Invocation, envelope.Errors) {
	arguments, problems := c.readLockArguments(false)
	return func(ctx context.Context) (any, error) {
		current, err := c.config.Locks.GetWithOwner(ctx, &c.caller, arguments.key)
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

var tooLongReason = fmt.Sprintf("must be at most %d characters", maxReason)

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
