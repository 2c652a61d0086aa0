package forrst

import (
	"bytes"
	"encoding/json"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// lockOptions are the options of the atomic lock extension (section 12.2).
type lockOptions struct {
	// key is as sent.
	key string
	// scope is wire.FunctionScope or wire.GlobalScope.
	scope string
	ttl   envelope.Duration
	// block is how long to wait, nil if the caller would not wait at all.
	block *waitOption
	// owner is empty if the caller leaves it to the service.
	owner       string
	autoRelease bool
}

// readLockOptions checks the options of the extension at position, one error for each
// fault. Unknown options are ignored.
func (c *call) readLockOptions(position int) (lockOptions, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readOptions(position, &problems)
	options := lockOptions{key: readKey(&fields)}
	if ttl := fields.RequiredDuration("ttl", c.ttlBound()); ttl != nil {
		options.ttl = *ttl
	}
	options.scope = c.readScope(&fields)
	options.block = c.readBlock(&fields)
	options.owner = readOwner(&fields)
	options.autoRelease = fields.Bool("auto_release", true)
	return options, problems
}

func readKey(fields *envelope.Fields) string {
	key, ok := fields.RequiredText("key")
	if !ok {
		return ""
	}
	if err := v1alpha1.ValidateKey(key); err != nil {
		fields.Fail("key", err.Error())
	}
	return key
}

func (c *call) readScope(fields *envelope.Fields) string {
	scope := wire.FunctionScope
	if fields.Raw("scope") != nil {
		scope, _ = fields.Text("scope")
	}
	switch scope {
	case wire.FunctionScope:
		if err := v1alpha1.ValidateFunction(c.request.Call.Function); err != nil {
			fields.Fail("scope", `must be "global": the name of the function `+err.Error())
		}
	case wire.GlobalScope, "": // Empty is an error that Text has reported.
	default:
		fields.Fail("scope", `must be "function" or "global"`)
	}
	return scope
}

func (h *Handler) ttlBound() envelope.DurationLimits {
	return envelope.DurationLimits{Max: h.config.Locks.MaxTTL()}
}

func (h *Handler) blockBound() envelope.DurationLimits {
	return envelope.DurationLimits{Max: h.config.MaxBlock, AllowZero: true}
}

// waitOption is how long a call waits for a lock.
type waitOption struct {
	envelope.Duration

	// sent is the option as sent.
	sent json.RawMessage
}

// readBlock returns nil if the option is absent or wrong.
func (h *Handler) readBlock(fields *envelope.Fields) *waitOption {
	block := fields.Duration("block", h.blockBound())
	if block == nil {
		return nil
	}
	// A call that waits does not keep the body of its request.
	return &waitOption{*block, bytes.Clone(fields.Raw("block"))}
}

func readOwner(fields *envelope.Fields) string {
	owner, ok := fields.Text("owner")
	if !ok {
		return ""
	}
	if err := v1alpha1.ValidateOwner(owner); err != nil {
		fields.Fail("owner", err.Error())
	}
	return owner
}

// acquisition is what the options ask for.
func (c *call) acquisition(options lockOptions) lock.Request {
	request := lock.Request{Acquisition: rules.Acquisition{
		Scope:  v1alpha1.ScopeGlobal,
		Key:    options.key,
		Owner:  options.owner,
		TTL:    options.ttl.Length,
		Holder: c.caller.Holder(),
	}}
	if options.block != nil {
		request.Wait = options.block.Length
	}
	if options.scope == wire.FunctionScope {
		request.Scope, request.Function = v1alpha1.ScopeFunction, c.request.Call.Function
	}
	return request
}

// fullKeyAsSent is the full key to show to the caller, in the caller's own spelling.
func (c *call) fullKeyAsSent(options lockOptions) string {
	if options.scope == wire.FunctionScope {
		return "lock:" + c.request.Call.Function + ":" + options.key
	}
	return "lock:" + options.key
}
