package forrst

import (
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
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
