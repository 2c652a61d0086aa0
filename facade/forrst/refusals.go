package forrst

import (
	"net/http"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/audit"
)

// refusalReasons are the codes that are refusals for the audit.
var refusalReasons = map[envelope.Code]audit.Reason{
	envelope.Unauthorized:          audit.Unauthenticated,
	envelope.Forbidden:             audit.Forbidden,
	envelope.LockRefused:           audit.Forbidden,
	envelope.LockOwnershipMismatch: audit.WrongOwner,
	envelope.RateLimited:           audit.RateLimited,
}

// recordRefusal records an answer that is a refusal.
func (c *call) recordRefusal(r *http.Request) {
	if len(c.response.Errors) == 0 || c.isForeign {
		return
	}
	problem := &c.response.Errors[0]
	reason, isRefusal := refusalReasons[problem.Code]
	if !isRefusal {
		return
	}
	refused := server.Refusal{
		Reason: reason, Namespace: c.caller.Namespace, Key: c.refusedLock(), Operation: c.operation(),
		Message: problem.Message, At: c.config.Clock.Now(),
	}
	if c.caller.IsAuthenticated {
		refused.Actor = c.caller.Holder()
	}
	c.refusals.Record(r, refused)
}

// refusedLock returns the lock that a refused call is about, or "" if it is not known.
func (c *call) refusedLock() v1alpha1.FullKey {
	switch {
	case c.about != "":
		return c.about
	case c.function == nil:
		return ""
	default:
		return c.requestedLock()
	}
}

// operation is what the audit calls the function: the last part of its name, as served here. Functions of
// other services are calls.
func (c *call) operation() string {
	switch {
	case c.function == nil:
		return ""
	case c.function.isRouted:
		return "call"
	}
	name := c.function.names[0]
	return name[strings.LastIndexByte(name, ':')+1:]
}
