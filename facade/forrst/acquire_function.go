package forrst

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
)

// acquireArguments are the checked arguments of the acquire function.
type acquireArguments struct {
	// key is as sent.
	key   string
	block *waitOption
	// waiting is how many callers wait for a lock that could not be had. Nil if that is not known.
	waiting *int
	locks.Acquisition
}

func (c *call) prepareAcquire() (Invocation, envelope.Errors) {
	arguments, problems := c.readAcquireArguments()
	return func(ctx context.Context) (any, error) {
		if arguments.Priority() > 0 {
			if err := c.config.Access.Authorize(ctx, &c.Caller, access.VerbPrioritize, arguments.FullKey); err != nil {
				return nil, err
			}
		}
		granted, err := arguments.Acquire(ctx, c.request.Call.Function)
		if err != nil {
			c.about = arguments.FullKey()
			if errors.Is(err, lock.ErrHeld) {
				arguments.waiting = c.config.Locks.Waiting(ctx, &c.Caller, c.about, err)
			}
			return nil, arguments.problem(err)
		}
		c.undo = func(ctx context.Context) { c.config.Locks.TakeBack(ctx, c.request.Call.Function, &c.Caller, granted) }
		c.reportFencing(granted)
		return wire.Acquired{Key: arguments.key, Acquired: true, Lock: wireLock(granted)}, nil
	}, problems
}

func (c *call) readAcquireArguments() (*acquireArguments, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	arguments := &acquireArguments{}
	var request lock.Request
	arguments.key, _ = fields.RequiredText("key")
	request.Key = arguments.key
	arguments.block = c.readRequest(&fields, &request)
	var err error
	arguments.Acquisition, err = c.config.Locks.Prepare(&c.Caller, request, true)
	if err != nil {
		c.addInvalid(&problems, err, errorContext{kind: acquireFunction, pointer: argumentsPointer})
	}
	return arguments, problems
}

// readRequest reads what requests for one lock and for several have in common. It returns how long the caller would wait, nil if
// not at all.
func (c *call) readRequest(fields *envelope.Fields, request *lock.Request) *waitOption {
	block := c.readBlock(fields)
	if block != nil {
		request.Wait = block.Length
	}
	request.Priority = fields.Integer("priority")
	request.Owner, _ = fields.Text("owner")
	request.Scope, request.Function = readScopeAndFunction(fields)
	if ttl := fields.Duration("ttl", unbounded); ttl != nil {
		request.TTL = ttl.Length
	}
	request.Reason = readReason(fields)
	request.HolderRef = readHolderRef(fields)
	if delay := fields.Duration("release_delay", envelope.DurationLimits{Unbounded: true, AllowZero: true}); delay != nil {
		request.ReleaseDelay = delay.Length
	}
	return block
}

// acquiredLock is the lock that the arguments name.
func (c *call) acquiredLock() v1alpha1.FullKey {
	var ignored envelope.Errors
	fields := c.readArguments(&ignored)
	key, _ := fields.RequiredText("key")
	scope, function := readScopeAndFunction(&fields)
	return v1alpha1.NewFullKey(scope, function, key)
}

func readScopeAndFunction(fields *envelope.Fields) (v1alpha1.Scope, string) {
	scope, isGiven := fields.Text("scope")
	function, _ := fields.Text("function")
	switch {
	case !isGiven, scope == wire.GlobalScope:
		return v1alpha1.ScopeGlobal, function
	case scope == wire.FunctionScope:
		return v1alpha1.ScopeFunction, function
	}
	fields.Fail("scope", `must be "function" or "global"`)
	return "", ""
}

// problem returns what the caller is told about an error.
func (a *acquireArguments) problem(err error) error {
	about := errorContext{
		kind: acquireFunction, key: a.key, pointer: argumentsPointer, block: a.block,
		held: wire.HeldDetails{Key: a.key, Scope: wire.GlobalScope, FullKey: string(a.FullKey()), Waiting: a.waiting},
	}
	if a.Scope() == v1alpha1.ScopeFunction {
		about.held.Scope = wire.FunctionScope
	}
	return about.problem(err)
}

// readHolderRef reads the object that the caller names. Its fields are checked with the rest
// of the request. Only without a reference it returns nil: one that is malformed is empty.
func readHolderRef(fields *envelope.Fields) *v1alpha1.HolderReference {
	if fields.IsAbsent("holder_ref") {
		return nil
	}
	ref := &v1alpha1.HolderReference{}
	if object, ok := fields.Nested("holder_ref", "must be an object"); ok {
		ref.APIVersion, _ = object.RequiredText("api_version")
		ref.Kind, _ = object.RequiredText("kind")
		ref.Name, _ = object.RequiredText("name")
		uid, _ := object.RequiredText("uid")
		ref.UID = types.UID(uid)
	}
	return ref
}
