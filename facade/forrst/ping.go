package forrst

import (
	"context"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

type pong struct {
	Status    string `json:"status"`
	Timestamp string `json:"timestamp"`
}

// preparePing answers at once (docs/forrst.md, section 9.1). With the lock extension it is
// also how clients hold a lock without a function of their own.
func (c *call) preparePing() (Invocation, envelope.Errors) {
	return func(context.Context) (any, error) {
		return pong{Status: "healthy", Timestamp: envelope.FormatTimestamp(c.config.Clock.Now())}, nil
	}, nil
}
