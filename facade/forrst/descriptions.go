package forrst

import (
	"maps"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// Errors of functions about locks.
var (
	lockNotFound = DescribedError{envelope.LockNotFound, "Lock does not exist"}
	lockMismatch = DescribedError{envelope.LockOwnershipMismatch, "Lock is owned by a different process"}
)

func describePing() Description {
	return Description{
		Summary:       "Answers at once",
		ResultSummary: "That the service answers, and its time",
		Returns:       object(map[string]Schema{"status": oneOf("healthy"), "timestamp": timestampSchema()}, "status", "timestamp"),
	}
}

func describeHealth() Description {
	status := oneOf("healthy", "degraded", "unhealthy")
	return Description{
		Summary: "Tells how well the service and what it depends on work",
		Arguments: []Argument{
			optional("component", Schema{Type: "string", MinLength: 1}.describedAs(`One component, or "self" for the replica alone`)),
			optional("include_details", flag(true).describedAs("Whether to tell more than the status of components")),
		},
		ResultSummary: "The worst status, and that of each component",
		Returns: object(map[string]Schema{
			"status": status, "timestamp": timestampSchema(), "version": {Type: "string"},
			"components": {Type: "object"},
		}, "status", "timestamp"),
	}
}

func describeCapabilities() Description {
	names := Schema{Type: "array", Items: &Schema{Type: "string"}}
	return Description{
		Summary:       "Tells what the service offers, and its limits",
		ResultSummary: "Functions, extensions and limits",
		Returns: object(map[string]Schema{
			"service": {Type: "string"}, "protocol_versions": names, "functions": names,
			"extensions": {Type: "array", Items: &Schema{Type: "object"}}, "limits": {Type: "object"},
		}, "service", "protocol_versions", "functions", "extensions", "limits"),
	}
}

func describeDescribe() Description {
	return Description{
		Summary: "Describes one function, or all of them",
		Arguments: []Argument{
			optional("function", Schema{Type: "string", MinLength: 1}.describedAs("The function to describe; all without it")),
			optional("version", Schema{Type: "string"}.describedAs("The version to describe; all without it")),
			optional("include_schema", flag(true).describedAs("Whether to include JSON Schemas")),
		},
		ResultSummary: "The function, or a document with all functions",
		Returns:       Schema{Type: "object"},
		Errors:        []DescribedError{{envelope.VersionNotFound, "The function has no such version"}},
	}
}

func describeCancel() Description {
	return Description{
		Summary:       "Cancels the calls with a token that wait or run on the same replica",
		Arguments:     []Argument{required("token", tokenSchema().describedAs("The token of the cancellation extension"))},
		ResultSummary: "That the calls are cancelled",
		Returns:       object(map[string]Schema{"cancelled": {Type: "boolean"}, "token": {Type: "string"}}, "cancelled", "token"),
		Errors: []DescribedError{
			{envelope.CancellationTokenUnknown, "No call has the token"},
			{envelope.CancellationTooLate, "The function of the call is over"},
		},
		SideEffects: []string{"update"},
	}
}

func describeRelease() Description {
	return Description{
		Summary:       "Releases a lock of the caller",
		Arguments:     []Argument{required("key", fullKeySchema()), required("owner", ownerSchema())},
		ResultSummary: "That the lock is released",
		Returns:       object(map[string]Schema{"released": {Type: "boolean"}, "key": {Type: "string"}}, "released", "key"),
		Errors:        []DescribedError{lockNotFound, lockMismatch},
		SideEffects:   []string{"delete"},
	}
}

func describeForceRelease(needsReason bool) Description {
	reason := reasonSchema("Why the lock is taken away, for the record")
	if needsReason {
		reason.Pattern = `\S`
	}
	return Description{
		Summary: "Releases a lock, whoever holds it",
		Arguments: []Argument{
			required("key", fullKeySchema()),
			argument("reason", needsReason, reason),
		},
		ResultSummary: "That the lock is released",
		Returns: object(map[string]Schema{
			"released": {Type: "boolean"}, "key": {Type: "string"}, "forced": {Type: "boolean"},
		}, "released", "key", "forced"),
		Errors:      []DescribedError{lockNotFound},
		SideEffects: []string{"delete"},
	}
}

func describeStatus() Description {
	return Description{
		Summary:       "Tells whether a lock is held, under which owner token and for how long",
		Arguments:     []Argument{required("key", fullKeySchema())},
		ResultSummary: "The state of the lock",
		Returns: object(map[string]Schema{
			"key": {Type: "string"}, "locked": {Type: "boolean"}, "owner": {Type: "string"},
			"acquired_at": timestampSchema(), "expires_at": timestampSchema(),
			"ttl_remaining": {Type: "integer", Minimum: new(0)},
		}, "key", "locked"),
	}
}

func describeAcquire() Description {
	return Description{
		Summary: "Takes a lock that stays until it is released or expires",
		Arguments: []Argument{
			required("key", keySchema()),
			optional("scope", scopeSchema(wire.GlobalScope)),
			optional("function", Schema{Type: "string", MinLength: 1}.describedAs("What the key belongs to, with function scope")),
			optional("ttl", durationSchema(false).describedAs("How long the lock lives if nobody renews or releases it")),
			optional("block", durationSchema(true).describedAs("How long to wait for the lock")),
			optional("owner", ownerSchema()),
			optional("reason", reasonSchema("Why the lock is held, for people")),
			optional("holder_ref", holderRefSchema().describedAs("The object that the lock is held for and ends with; the caller's Pod, if its token tells")),
			optional("release_delay", durationSchema(true).describedAs("How long the lock stays after that object has ended")),
		},
		ResultSummary: "The lock",
		Returns:       lockSchema(map[string]Schema{"acquired": {Type: "boolean"}}, "acquired", "owner"),
		Errors: []DescribedError{
			{envelope.LockAcquisitionFailed, "Unable to acquire lock"},
			{envelope.LockTimeout, "Lock acquisition timed out"},
		},
		SideEffects: []string{"create"},
	}
}

func describeRenew() Description {
	return Description{
		Summary: "Extends a lock of the caller",
		Arguments: []Argument{
			required("key", fullKeySchema()),
			required("owner", ownerSchema()),
			optional("ttl", durationSchema(false).describedAs("How long the lock lives from now on")),
		},
		ResultSummary: "The lock",
		Returns:       lockSchema(map[string]Schema{"renewed": {Type: "boolean"}}, "renewed", "owner"),
		Errors:        []DescribedError{lockNotFound, lockMismatch},
		SideEffects:   []string{"update"},
	}
}

func describeVendorRelease() Description {
	described := describeRelease()
	described.Summary = "Releases a lock of the caller, and tells a lock that has expired from one that never was"
	return described
}

func describeVendorStatus() Description {
	return Description{
		Summary:       "Tells all about a lock",
		Arguments:     []Argument{required("key", fullKeySchema())},
		ResultSummary: "The state of the lock",
		Returns: object(map[string]Schema{
			"key": {Type: "string"}, "locked": {Type: "boolean"}, "checked_at": timestampSchema(),
		}, "key", "locked", "checked_at"),
	}
}

func describeList() Description {
	locks := lockSchema(nil)
	return Description{
		Summary:       "Lists the locks that are held",
		Arguments:     []Argument{optional("owner", ownerSchema().describedAs("Only the locks under this owner token"))},
		ResultSummary: "The locks",
		Returns:       object(map[string]Schema{"locks": {Type: "array", Items: &locks}}, "locks"),
	}
}

func reasonSchema(description string) Schema {
	return Schema{Type: "string", MaxLength: maxReason, Description: description}
}

// lockSchema describes a lock, with members beside those of every lock.
func lockSchema(more map[string]Schema, always ...string) Schema {
	lock := map[string]Schema{
		"key": {Type: "string"}, "full_key": {Type: "string"}, "owner": {Type: "string"},
		"scope": oneOf(wire.FunctionScope, wire.GlobalScope), "function": {Type: "string"},
		"holder": {Type: "string"}, "reason": {Type: "string"}, "ttl": durationSchema(false),
		"acquired_at": timestampSchema(), "renewed_at": timestampSchema(), "expires_at": timestampSchema(),
		"fencing_token": {Type: "integer", Minimum: new(1)},
		"holder_ref":    holderRefSchema(), "release_delay": durationSchema(true),
	}
	maps.Copy(lock, more)
	return object(lock, append(always, "key", "full_key", "scope", "holder", "acquired_at", "renewed_at", "expires_at")...)
}
