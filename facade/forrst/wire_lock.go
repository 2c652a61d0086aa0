package forrst

import (
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// argumentsPointer is where problems with arguments are.
const argumentsPointer = "/call/arguments"

func (c *call) readArguments(problems *envelope.Errors) envelope.Fields {
	fields, _ := envelope.ReadObject(c.request.Call.Arguments, argumentsPointer, envelope.InvalidArguments, problems)
	return fields
}

// wireLock describes a lock to a caller who knows, or is shown, the owner token.
func wireLock(current *v1alpha1.Lock) wire.Lock {
	spec := &current.Spec
	described := wire.Lock{
		FullKey:    string(spec.FullKey()),
		Owner:      spec.Owner,
		Scope:      wire.GlobalScope,
		Function:   spec.Function,
		Holder:     spec.Holder,
		Reason:     spec.Reason,
		HolderRef:  wire.NewHolderRef(spec.HolderRef),
		AcquiredAt: timestamp(spec.AcquireTime),
		RenewedAt:  timestamp(spec.RenewTime),
		ExpiresAt:  timestamp(spec.ExpireTime),
	}
	if spec.Scope == v1alpha1.ScopeFunction {
		described.Scope = wire.FunctionScope
	}
	if spec.TTL != nil {
		described.TTL = new(envelope.NewDuration(spec.TTL.Duration))
	}
	if spec.ReleaseDelay != nil {
		described.ReleaseDelay = new(envelope.NewDuration(spec.ReleaseDelay.Duration))
	}
	if token, err := current.FencingToken(); err == nil {
		described.FencingToken = &token
	}
	return described
}

func timestamp(at *v1alpha1.Timestamp) string {
	if at == nil {
		return envelope.FormatTimestamp(time.Time{})
	}
	return envelope.FormatTimestamp(at.Time)
}
