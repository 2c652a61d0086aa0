package forrst

import (
	"context"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

type pong struct {
	Status    string `json:"status"`
	Timestamp string `json:"timestamp"`
}

// ping answers at once (section 9.1). With the lock extension it is also how clients
// hold a lock without a function of their own.
func (h *Handler) ping() Function {
	return Function{
		Names:       systemNames("diagnostics", "ping"),
		Version:     systemVersion,
		Description: describePing(),
		Prepare: func(*envelope.Request) (Invocation, envelope.Errors) {
			return func(context.Context) (any, error) {
				return pong{Status: "healthy", Timestamp: envelope.FormatTimestamp(h.config.Clock.Now())}, nil
			}, nil
		},
	}
}
