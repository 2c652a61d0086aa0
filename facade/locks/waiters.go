package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
)

// Waiters returns those that wait for a lock of the caller's namespace or, if key is empty, for any of them, and
// whether more of them wait, see [lock.LineReader]. A backend that does not know them has none.
func (l *Locks) Waiters(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey, limit int) (waiters []lock.Waiter, more bool, err error) {
	reader, ok := l.backend.(lock.LineReader)
	if !ok {
		return nil, false, nil
	}
	waiters, isComplete, err := reader.Waiters(ctx, caller.Namespace, key, limit)
	return waiters, !isComplete, err
}

func sum(lines []lock.Line) int {
	waiting := 0
	for index := range lines {
		waiting += lines[index].Waiting
	}
	return waiting
}

// Lines returns how many wait for each lock of the caller's namespace, see [lock.LineCounter].
func (l *Locks) Lines(ctx context.Context, caller *access.Caller, limit int) (lines []lock.Line, isComplete bool, err error) {
	counter, ok := l.backend.(lock.LineCounter)
	if !ok {
		return nil, false, fmt.Errorf("count who waits in namespace %s: %w", caller.Namespace, errors.ErrUnsupported)
	}
	return counter.Lines(ctx, caller.Namespace, "", limit)
}

// patience is how long a refusal may take longer for the number of those that wait.
const patience = 100 * time.Millisecond

// Waiting returns how many callers wait for a lock that was refused, or nil if that is not known at once. It costs the API
// server nothing, nor another replica: callers that poll a lock may be many. Only the refusal of a caller who has waited at
// another replica tells what that knew.
func (l *Locks) Waiting(ctx context.Context, caller *access.Caller, key v1alpha1.FullKey, refusal error) *int {
	if held, ok := errors.AsType[*lock.HeldError](refusal); ok && held.Waiting != nil {
		return held.Waiting
	}
	counter, ok := l.backend.(lock.LineCounter)
	if !ok {
		return nil
	}
	if lines, ok := counter.(lock.LineHome); ok && !lines.IsHome(caller.Namespace, key) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lines, _, err := counter.Lines(ctx, caller.Namespace, key, 1)
	if err != nil {
		return nil
	}
	return new(sum(lines))
}
