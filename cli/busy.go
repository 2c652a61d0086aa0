package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
)

// explainTimeout bounds how long it may take to find out who is in the way.
const explainTimeout = 3 * time.Second

// busy says who holds a lock, as people say it. The error matches [lock.ErrHeld].
func busy(ctx context.Context, s *session.Session, err error) string {
	held, ok := errors.AsType[*lock.HeldError](err)
	switch {
	case !ok:
		return err.Error()
	case held.IsExpired:
		return terminal.Clean(held.Key.Bare()) + " has expired, but is kept a moment longer, since clocks may differ"
	case held.Holder == "":
		return terminal.Clean(held.Key.Bare()) + " is held"
	}
	var text string
	if current := currentLock(ctx, s, held); current != nil {
		text = heldBy(s.Times(), current, isMe(ctx, s, held))
	} else {
		holder := terminal.Clean(held.Holder)
		if isMe(ctx, s, held) {
			holder = "you"
		}
		text = fmt.Sprintf("%s is held by %s; it ends %s unless it is renewed", terminal.Clean(held.Key.Bare()), holder, s.Times().In(held.ExpireTime))
	}
	if errors.Is(err, lock.ErrTimeout) {
		return "the wait is over: " + text
	}
	return text
}

// heldBy says who holds a lock, as the command who does: by the object that it is held for, if any. That a lock ends
// soon misleads if its holder renews it.
func heldBy(times human.Times, held *v1alpha1.Lock, isMine bool) string {
	row, holder := locks.RowOf(held), loser(held)
	if isMine {
		holder = "you"
	}
	text := fmt.Sprintf("%s is held by %s, %s", keyOf(held), holder, times.During(row.Acquired))
	if row.Renewed.After(row.Acquired) {
		return text + "; its holder renews it, last " + times.Ago(row.Renewed)
	}
	return text + "; it ends " + times.In(row.Expires) + " unless it is renewed"
}

// currentLock returns the lock that is in the way, if it can be read and is still that one.
func currentLock(ctx context.Context, s *session.Session, held *lock.HeldError) *v1alpha1.Lock {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	backend, err := s.Backend(ctx)
	if err != nil {
		return nil
	}
	current, err := backend.Get(ctx, s.Namespace(), held.Key)
	if err != nil || current.Spec.Holder != held.Holder || current.Spec.AcquireTime == nil || current.Spec.RenewTime == nil || current.Spec.ExpireTime == nil {
		return nil
	}
	return current
}

// isMe reports whether the user is known to be the holder. A façade does not tell.
func isMe(ctx context.Context, s *session.Session, held *lock.HeldError) bool {
	user, err := s.User(ctx)
	return err == nil && held.IsBy(user)
}
