package forrst

import (
	"context"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
)

// Function is a function that a test adds.
type Function struct {
	Name     string
	IsRouted bool
	Prepare  func(request *envelope.Request) (Invocation, envelope.Errors)
}

// Add serves functions beside those of the façade.
func (h *Handler) Add(functions ...Function) {
	for _, added := range functions {
		h.functions.add(&function{
			names:    []string{added.Name},
			class:    routedClass,
			isRouted: added.IsRouted,
			prepare: func(c *call) Invocation {
				invoke, problems := added.Prepare(&c.request)
				for _, problem := range problems {
					c.faults.Add(problem)
				}
				return func(ctx context.Context) (any, error) { return invoke(context.WithValue(ctx, traceKey{}, c.trace)) }
			},
		})
	}
}

type traceKey struct{}

// TraceOf returns the trace of the call of an added function whose context is ctx, or nil.
func TraceOf(ctx context.Context) *forward.Trace {
	trace, _ := ctx.Value(traceKey{}).(*forward.Trace)
	return trace
}

// RenewAfter replaces the pauses between renewals of the locks of routed functions, and returns
// those of the product.
func (h *Handler) RenewAfter(pause func(ttl time.Duration, failures int) time.Duration) func(ttl time.Duration, failures int) time.Duration {
	replaced := h.forwarder.Pause
	h.forwarder.Pause = pause
	return replaced
}
