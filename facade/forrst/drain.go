package forrst

import (
	"context"
	"errors"
)

// errStopped is the cause that ends the context of a call for which the server did not
// wait any longer.
var errStopped = errors.New("the server has stopped")

type phasesKey struct{}

// phases tell the calls of a server how far it is with stopping.
type phases struct {
	// stopping ends when the server is to stop. It goes on as before for a while, but
	// callers should connect to another one.
	stopping context.Context
	// draining ends when calls must not wait any more. Calls that run go on.
	draining context.Context
}

// withPhases returns ctx with the phases.
func withPhases(ctx context.Context, p phases) context.Context {
	return context.WithValue(ctx, phasesKey{}, p)
}

// drainOf returns a context that ends when calls with ctx must not wait any more.
func drainOf(ctx context.Context) context.Context {
	if p, ok := ctx.Value(phasesKey{}).(phases); ok {
		return p.draining
	}
	return ctx
}

// isStopping reports whether callers should go elsewhere.
func isStopping(ctx context.Context) bool {
	p, ok := ctx.Value(phasesKey{}).(phases)
	return ok && p.stopping.Err() != nil
}
