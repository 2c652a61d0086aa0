package forrst

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// acquireArguments are the checked arguments of the acquire function.
type acquireArguments struct {
	// key is as sent.
	key     string
	block   *waitOption
	request lock.Request
}

func (c *call) prepareAcquire() (Invocation, envelope.Errors) {
	arguments, problems := c.readAcquireArguments()
	return func(ctx context.Context) (any, error) {
		if err := c.config.Locks.Bind(ctx, &c.caller, &arguments.request); err != nil {
			return nil, arguments.problem(err)
		}
		granted, err := c.acquire(ctx, arguments.request)
		if err != nil {
			return nil, arguments.problem(err)
		}
		c.undo = func(ctx context.Context) { c.release(ctx, granted.Spec.FullKey(), granted.Spec.Owner) }
		c.reportFencing(granted)
		return wire.Acquired{Key: arguments.key, Acquired: true, Lock: wireLock(granted)}, nil
	}, problems
}

func (c *call) readAcquireArguments() (acquireArguments, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := acquireArguments{
		key:   readKey(&fields),
		block: c.readBlock(&fields),
	}
	acquisition := rules.Acquisition{Key: arguments.key, Owner: readOwner(&fields), Holder: c.caller.Holder()}
	acquisition.Scope, acquisition.Function = readScopeAndFunction(&fields)
	if ttl := fields.Duration("ttl", c.ttlBound()); ttl != nil {
		acquisition.TTL = ttl.Length
	}
	acquisition.Reason = readReason(&fields)
	acquisition.HolderRef = readHolderRef(&fields, &problems)
	if delay := fields.Duration("release_delay", envelope.DurationLimits{Max: v1alpha1.MaxReleaseDelay, AllowZero: true}); delay != nil {
		acquisition.ReleaseDelay = delay.Length
	}
	arguments.request.Acquisition = acquisition
	if arguments.block != nil {
		arguments.request.Wait = arguments.block.Length
	}
	return arguments, problems
}

func readScopeAndFunction(fields *envelope.Fields) (v1alpha1.Scope, string) {
	scope, isGiven := fields.Text("scope")
	function, hasFunction := fields.Text("function")
	switch {
	case isGiven && scope == wire.FunctionScope:
		if !hasFunction && fields.Raw("function") == nil {
			fields.Fail("function", `is required when scope is "function"`)
		}
	case isGiven && scope != wire.GlobalScope:
		fields.Fail("scope", `must be "function" or "global"`)
		return "", ""
	case hasFunction:
		fields.Fail("function", `must be absent unless scope is "function"`)
		return "", ""
	}
	if !hasFunction {
		return v1alpha1.ScopeGlobal, ""
	}
	if err := v1alpha1.ValidateFunction(function); err != nil {
		fields.Fail("function", err.Error())
	}
	return v1alpha1.ScopeFunction, function
}

// problem returns what the caller is told about an error.
func (a *acquireArguments) problem(err error) error {
	question := lockQuestion{
		asker: acquireFunction, key: a.key, pointer: argumentsPointer, block: a.block,
		held: wire.HeldDetails{Key: a.key, Scope: wire.GlobalScope, FullKey: string(a.request.FullKey())},
	}
	if a.request.Scope == v1alpha1.ScopeFunction {
		question.held.Scope = wire.FunctionScope
	}
	return question.problem(err)
}

// readHolderRef reads the object that the caller names. Its fields are checked with the rest
// of the request.
func readHolderRef(fields *envelope.Fields, problems *envelope.Errors) *v1alpha1.HolderReference {
	raw := fields.Object("holder_ref")
	if raw == nil {
		return nil
	}
	object, _ := envelope.ReadObject(raw, fields.Pointer("holder_ref"), envelope.InvalidArguments, problems)
	ref := &v1alpha1.HolderReference{}
	ref.APIVersion, _ = object.RequiredText("api_version")
	ref.Kind, _ = object.RequiredText("kind")
	ref.Name, _ = object.RequiredText("name")
	uid, _ := object.RequiredText("uid")
	ref.UID = types.UID(uid)
	return ref
}
