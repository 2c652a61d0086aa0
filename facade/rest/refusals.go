package rest

import (
	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/problems"
)

// refusalReasons are the problems that are refusals for the audit.
var refusalReasons = map[*problems.Kind]audit.Reason{
	problems.Unauthenticated:  audit.Unauthenticated,
	problems.Forbidden:        audit.Forbidden,
	problems.RefusedByCluster: audit.Forbidden,
	problems.WrongToken:       audit.WrongOwner,
	problems.TooManyCalls:     audit.RateLimited,
}

// recordRefusal records a problem that is a refusal.
func (c *call) recordRefusal(problem *problems.Error) {
	reason, isRefusal := refusalReasons[problem.Kind]
	if !isRefusal {
		return
	}
	refused := server.Refusal{
		Reason: reason, Namespace: c.caller.Namespace, Key: c.refusedLock(), Message: problem.Detail, At: c.config.Clock.Now(),
	}
	if c.operation != nil {
		refused.Operation = c.operation.name
	}
	if c.caller.IsAuthenticated {
		refused.Actor = c.caller.Holder()
	}
	c.refusals.Record(c.request, refused)
}

// refusedLock returns the lock that a refused call is about, or "" if it is not known.
func (c *call) refusedLock() v1alpha1.FullKey {
	switch {
	case c.acquired.key != "":
		return c.acquired.fullKey()
	case c.operation == nil:
		return ""
	default:
		return c.requestedLock()
	}
}
