package forrst

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
)

// verb is what the caller has to be allowed to do, or empty if the call touches no lock.
func (c *call) verb() string {
	if c.function.verb == "" && c.position(envelope.AtomicLock) >= 0 {
		return VerbCreate
	}
	return c.function.verb
}

// authorize returns nil if the caller may make the call. It looks at no lock, and comes
// before anything is done, so that who may not do something is told the same whether or
// not there is a lock.
func (c *call) authorize(ctx context.Context) error {
	verb := c.verb()
	if err := c.chooseNamespace(verb != ""); err != nil {
		return err
	}
	if c.config.Access == nil || verb == "" {
		return nil
	}
	err := c.config.Access.Authorize(ctx, c.caller.User, verb, c.caller.Namespace)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrForbidden):
		problem := envelope.Error{Code: envelope.Forbidden, Message: err.Error()}.With(missingRight{
			Verb: verb, Resource: lockResource, Namespace: c.caller.Namespace,
		})
		return &problem
	case ctx.Err() != nil:
		return ctx.Err()
	}
	c.config.Logger.Error(err, "Failed to authorize a caller", "namespace", c.caller.Namespace, "verb", verb)
	return &unavailableError
}

const lockResource = "locks.forrst.dev"

// missingRight are the details of a refusal, in the terms of a Role.
type missingRight struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
}
