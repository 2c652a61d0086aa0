package engine

import (
	"context"
	"fmt"
	"forrst.dev/lock-operator/lock"
)

// errNotStarted means that nobody runs what the engine needs.
var errNotStarted = fmt.Errorf("the engine was not started: call Start, in a goroutine of its own: %w", lock.ErrUnavailable)

// awaitStart waits until an engine that runs its own informer was started, which programs
// do in a goroutine. Others are told of by what they share with their callers.
func (e *Engine) awaitStart(ctx context.Context) error {
	if e.runInformer == nil {
		return nil
	}
	select {
	case <-e.started:
		return nil
	default:
	}
	overdue := e.clock.NewTimer(e.timeout)
	defer overdue.Stop()
	select {
	case <-e.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-overdue.C():
		return errNotStarted
	}
}
