package rest

import (
	"forrst.dev/lock-operator/api/v1alpha1"
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

// refusedLock returns the lock that a refused call is about, or "" if it is not known.
func (c *call) refusedLock() v1alpha1.FullKey {
	switch {
	case c.failed.key != "":
		return c.failed.fullKey()
	case c.granted != nil: // Of several locks, it is the one with the fencing token that is told.
		return c.granted.Spec.FullKey()
	case c.acquired.key != "":
		return c.acquired.fullKey()
	case c.operation == nil:
		return ""
	default:
		return c.requestedLock()
	}
}
