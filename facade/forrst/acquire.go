package forrst

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/together"
)

func (c *call) prepareAcquire() Invocation {
	fields := c.readArguments(&c.faults)
	key, _ := fields.RequiredText("key")
	request := lock.Request{Acquisition: rules.Acquisition{Key: key}}
	block := c.readRequest(&fields, &request)
	wanted, err := c.config.Locks.Prepare(&c.Caller, request, true)
	c.addInvalid(acquireFunction, argumentsPointer, err)
	return func(ctx context.Context) (any, error) {
		if wanted.Priority() > 0 {
			if err := c.config.Access.Authorize(ctx, &c.Caller, access.VerbPrioritize, wanted.FullKey); err != nil {
				return nil, err
			}
		}
		granted, err := wanted.Acquire(ctx, c.request.Call.Function)
		if err != nil {
			return nil, c.acquireProblem(ctx, wanted.Scope(), key, wanted.FullKey(), block, err)
		}
		c.undo = func(ctx context.Context) { c.config.Locks.TakeBack(ctx, c.request.Call.Function, &c.Caller, granted) }
		c.reportFencing(granted)
		return wire.Acquired{Key: key, Acquired: true, Lock: wireLock(granted)}, nil
	}
}

// acquireProblem returns what the caller is told about an error with one lock, of which the key is as sent.
func (c *call) acquireProblem(ctx context.Context, scope v1alpha1.Scope, key string, fullKey v1alpha1.FullKey, block *waitOption, err error) error {
	c.about = fullKey
	about := errorContext{kind: acquireFunction, key: key, pointer: argumentsPointer, block: block}
	about.held = wire.HeldDetails{Key: key, Scope: wire.ScopeOf(scope), FullKey: string(fullKey)}
	if errors.Is(err, lock.ErrHeld) {
		about.held.Waiting = c.config.Locks.Waiting(ctx, &c.Caller, fullKey, err)
	}
	return about.problem(err)
}

func (c *call) prepareAcquireAll() Invocation {
	fields := c.readArguments(&c.faults)
	var request lock.Request
	keys, isStrict := fields.Texts("keys"), fields.IsText("together", "strict")
	block := c.readRequest(&fields, &request)
	set, err := c.config.Locks.PrepareSet(&c.Caller, request, keys, isStrict)
	c.addInvalid(acquireFunction, argumentsPointer, err)
	return func(ctx context.Context) (any, error) {
		if err := c.authorizeSet(ctx, set); err != nil {
			return nil, err
		}
		granted, err := set.Acquire(ctx, c.request.Call.Function)
		if failed, ok := errors.AsType[*locks.LockError](err); ok {
			if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
				c.about = failed.FullKey()
				problem := envelope.Error{Code: envelope.LockNotFound, Message: "Lock has ended before all others were acquired"}
				return nil, envelope.Errors{problem.With(wire.KeyDetails{Key: failed.Key})}
			}
			return nil, c.acquireProblem(ctx, failed.Scope, failed.Key, failed.FullKey(), block, err)
		}
		if err != nil {
			return nil, err
		}
		c.undo = func(ctx context.Context) { set.TakeBack(ctx, c.request.Call.Function, granted) }
		return c.acquiredAll(granted), nil
	}
}

// authorizeSet returns nil if the caller may acquire each of the locks. The call has begun with the first one.
func (c *call) authorizeSet(ctx context.Context, set *locks.Set) error {
	for number, key := range set.FullKeys() {
		for _, verb := range []string{access.VerbCreate, access.VerbPrioritize} {
			if verb == access.VerbCreate && number == 0 || verb == access.VerbPrioritize && set.Priority() <= 0 {
				continue
			}
			if err := c.config.Access.Authorize(ctx, &c.Caller, verb, func() v1alpha1.FullKey { return key }); err != nil {
				c.about = key
				return err
			}
		}
	}
	return nil
}

// acquiredAll describes locks that the caller has acquired together.
func (c *call) acquiredAll(granted []*v1alpha1.Lock) wire.AcquiredAll {
	last, first := locks.Outermost(granted)
	c.reportFencing(last)
	all := wire.AcquiredAll{Acquired: true, Owner: last.Spec.Owner, FencingToken: c.fencing, ExpiresAt: timestamp(first.Spec.ExpireTime)}
	for _, each := range granted {
		all.Locks = append(all.Locks, wire.ListedLock{Key: each.Spec.Key, Lock: wireLock(each)})
	}
	return all
}

// acquiredLock is the lock that the arguments name.
func (c *call) acquiredLock() v1alpha1.FullKey {
	fields := c.readArguments(new(envelope.Errors))
	key, _ := fields.RequiredText("key")
	scope, function := readScopeAndFunction(&fields)
	return v1alpha1.NewFullKey(scope, function, key)
}

// firstAcquiredLock is the first of the locks that the arguments name, in the order of their full keys.
func (c *call) firstAcquiredLock() v1alpha1.FullKey {
	fields := c.readArguments(new(envelope.Errors))
	scope, function := readScopeAndFunction(&fields)
	ordered, _ := together.Order(rules.Acquisition{Scope: scope, Function: function}, fields.Texts("keys"))
	if len(ordered) == 0 {
		return ""
	}
	return ordered[0].FullKey()
}

// readRequest reads what requests for one lock and for several have in common. It returns how long the caller would wait,
// nil if not at all.
func (c *call) readRequest(fields *envelope.Fields, request *lock.Request) *waitOption {
	block := c.readBlock(fields, request)
	request.Priority = fields.Integer("priority")
	request.Owner, _ = fields.Text("owner")
	request.Scope, request.Function = readScopeAndFunction(fields)
	request.TTL = fields.Duration("ttl", unbounded).Span()
	request.Reason = readReason(fields)
	request.HolderRef = readHolderRef(fields)
	request.ReleaseDelay = fields.Duration("release_delay", envelope.DurationLimits{Unbounded: true, AllowZero: true}).Span()
	return block
}

// unbounded reads a duration whose bound [locks.Locks.Prepare] knows.
var unbounded = envelope.DurationLimits{Unbounded: true}

// waitOption is how long a call waits for a lock.
type waitOption struct {
	envelope.Duration

	// sent is the option as sent.
	sent json.RawMessage
}

// readBlock reads how long the request would wait. It returns nil if the option is absent or wrong.
func (h *Handler) readBlock(fields *envelope.Fields, request *lock.Request) *waitOption {
	block := fields.Duration("block", envelope.DurationLimits{Max: h.config.MaxBlock, AllowZero: true})
	if block == nil {
		return nil
	}
	request.Wait = block.Length
	// A call that waits does not keep the body of its request.
	return &waitOption{*block, bytes.Clone(fields.Raw("block"))}
}

func readScopeAndFunction(fields *envelope.Fields) (v1alpha1.Scope, string) {
	scope := readScope(fields, v1alpha1.ScopeGlobal)
	function, _ := fields.Text("function")
	if scope == "" { // The function is neither required nor forbidden then.
		function = ""
	}
	return scope, function
}

// readScope reads a scope, and returns absent if there is none, "" if it is an unknown one, and global if it is no text.
func readScope(fields *envelope.Fields, absent v1alpha1.Scope) v1alpha1.Scope {
	if fields.IsAbsent("scope") {
		return absent
	}
	scope, isText := fields.Text("scope")
	switch {
	case !isText, scope == wire.GlobalScope:
		return v1alpha1.ScopeGlobal
	case scope == wire.FunctionScope:
		return v1alpha1.ScopeFunction
	}
	fields.Fail("scope", `must be "function" or "global"`)
	return ""
}

// readHolderRef reads the object that the caller names. Its fields are checked with the rest of the request. Only without a
// reference it returns nil: one that is malformed is empty.
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

// readReason reads why something is done. An empty reason is none.
func readReason(fields *envelope.Fields) string {
	if string(fields.Raw("reason")) == `""` {
		return ""
	}
	reason, _ := fields.Text("reason")
	return reason
}
