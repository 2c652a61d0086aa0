package forrst

import "forrst.dev/lock-operator/facade/forrst/envelope"

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
			isRouted: added.IsRouted,
			prepare:  func(c *call) (Invocation, envelope.Errors) { return added.Prepare(&c.request) },
		})
	}
}
