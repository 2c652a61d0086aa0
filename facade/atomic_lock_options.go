package facade

import (
	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock/rules"
)

// The values of the scope option.
const (
	functionScope = "function"
	globalScope   = "global"
)

// lockOptions are the options of the atomic lock extension (section 12.2).
type lockOptions struct {
	// key is as sent.
	key string
	// scope is functionScope or globalScope.
	scope string
	ttl   forrst.Duration
	// owner is empty if the caller leaves it to the service.
	owner       string
	autoRelease bool
}

// readLockOptions checks the options of the extension at position, one error for each
// fault. Unknown options are ignored.
func (c *call) readLockOptions(position int) (lockOptions, forrst.Errors) {
	var problems forrst.Errors
	fields, _ := forrst.ReadObject(c.request.Extensions[position].Options,
		extensionPointer(position)+"/options", forrst.InvalidArguments, &problems)
	bound := forrst.DurationLimits{Max: c.config.Limits.MaxTTL}

	options := lockOptions{key: readKey(&fields)}
	if ttl := fields.RequiredDuration("ttl", bound); ttl != nil {
		options.ttl = *ttl
	}
	options.scope = c.readScope(&fields)
	refuseBlock(&fields, bound)
	options.owner = readOwner(&fields)
	options.autoRelease = fields.Bool("auto_release", true)
	return options, problems
}

func readKey(fields *forrst.Fields) string {
	key, ok := fields.RequiredText("key")
	if !ok {
		return ""
	}
	if err := v1alpha1.ValidateKey(key); err != nil {
		fields.Fail("key", err.Error())
	}
	return key
}

func (c *call) readScope(fields *forrst.Fields) string {
	scope := functionScope
	if fields.Raw("scope") != nil {
		scope, _ = fields.Text("scope")
	}
	switch scope {
	case functionScope:
		if err := v1alpha1.ValidateFunction(c.request.Call.Function); err != nil {
			fields.Fail("scope", `must be "global": the name of the function `+err.Error())
		}
	case globalScope, "": // Empty is an error that Text has reported.
	default:
		fields.Fail("scope", `must be "function" or "global"`)
	}
	return scope
}

// refuseBlock checks the wait that the caller asks for and refuses it: this server
// takes a lock at once or not at all.
func refuseBlock(fields *forrst.Fields, bound forrst.DurationLimits) {
	bound.AllowZero = true
	if fields.Duration("block", bound) != nil {
		fields.Fail("block", "is not supported: the server does not wait for locks")
	}
}

func readOwner(fields *forrst.Fields) string {
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
func (c *call) acquisition(options lockOptions) rules.Acquisition {
	request := rules.Acquisition{
		Scope:  v1alpha1.ScopeGlobal,
		Key:    options.key,
		Owner:  options.owner,
		TTL:    options.ttl.Length,
		Holder: c.holder,
	}
	if options.scope == functionScope {
		request.Scope, request.Function = v1alpha1.ScopeFunction, c.request.Call.Function
	}
	return request
}

// fullKeyAsSent is the full key to show to the caller, in the caller's own spelling.
func (c *call) fullKeyAsSent(options lockOptions) string {
	if options.scope == functionScope {
		return "lock:" + c.request.Call.Function + ":" + options.key
	}
	return "lock:" + options.key
}
