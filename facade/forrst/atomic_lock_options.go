package forrst

import (
	"bytes"
	"encoding/json"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// lockOptions are the options of the atomic lock extension (docs/forrst.md, section 12.2).
type lockOptions struct {
	// key is as sent.
	key string
	// scope is wire.FunctionScope or wire.GlobalScope.
	scope string
	// block is how long to wait, nil if the caller would not wait at all.
	block       *waitOption
	autoRelease bool
	locks.Acquisition
}

// readLockOptions checks the options of the extension at position, one error for each
// fault. Unknown options are ignored.
func (c *call) readLockOptions(position int) (lockOptions, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readOptions(position, &problems)
	var options lockOptions
	request := lock.Request{Acquisition: rules.Acquisition{Scope: v1alpha1.ScopeGlobal}}
	options.key, _ = fields.RequiredText("key")
	request.Key = options.key
	if ttl := fields.RequiredDuration("ttl", unbounded); ttl != nil {
		request.TTL = ttl.Length
	}
	if options.scope = readScope(&fields); options.scope == wire.FunctionScope {
		request.Scope, request.Function = v1alpha1.ScopeFunction, c.request.Call.Function
	}
	if options.block = c.readBlock(&fields); options.block != nil {
		request.Wait = options.block.Length
	}
	request.Owner, _ = fields.Text("owner")
	options.autoRelease = fields.Bool("auto_release", true)
	var err error
	options.Acquisition, err = c.config.Locks.Prepare(&c.Caller, request, !options.autoRelease)
	if err != nil {
		c.addInvalid(&problems, err, errorContext{kind: lockExtension, pointer: extensionPointer(position) + "/options"})
	}
	return options, problems
}

func readScope(fields *envelope.Fields) string {
	if fields.Raw("scope") == nil {
		return wire.FunctionScope
	}
	scope, ok := fields.Text("scope")
	if ok && scope != wire.FunctionScope && scope != wire.GlobalScope {
		fields.Fail("scope", `must be "function" or "global"`)
	}
	return scope
}

// unbounded reads a duration whose bound [locks.Locks.Prepare] knows.
var unbounded = envelope.DurationLimits{Unbounded: true}

// waitOption is how long a call waits for a lock.
type waitOption struct {
	envelope.Duration

	// sent is the option as sent.
	sent json.RawMessage
}

// readBlock returns nil if the option is absent or wrong.
func (h *Handler) readBlock(fields *envelope.Fields) *waitOption {
	block := fields.Duration("block", envelope.DurationLimits{Max: h.config.MaxBlock, AllowZero: true})
	if block == nil {
		return nil
	}
	// A call that waits does not keep the body of its request.
	return &waitOption{*block, bytes.Clone(fields.Raw("block"))}
}

// fullKeyAsSent is the full key to show to the caller, in the caller's own spelling.
func (c *call) fullKeyAsSent(options lockOptions) string {
	if options.scope == wire.FunctionScope {
		return "lock:" + c.request.Call.Function + ":" + options.key
	}
	return "lock:" + options.key
}
