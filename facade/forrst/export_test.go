package forrst

import (
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
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
				return invoke
			},
		})
	}
}

// RenewAfter replaces the pauses between renewals of the locks of routed functions, and returns
// those of the product.
func (h *Handler) RenewAfter(pause func(ttl time.Duration, failures int) time.Duration) func(ttl time.Duration, failures int) time.Duration {
	replaced := h.forwarder.Pause
	h.forwarder.Pause = pause
	return replaced
}
