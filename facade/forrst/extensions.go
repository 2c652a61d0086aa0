package forrst

import (
	"slices"
	"strconv"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// extension is what is offered around the function of a call.
type extension struct {
	name string
	// prepare is given the position of the element in the request. It adds what is wrong to the faults of the call, and must
	// have no effect yet. The wrapper may be nil, for nothing to do. Without prepare, the extension only decorates the response.
	prepare func(c *call, position int) wrapper
}

// wrapper lets an extension do its work before and after the function.
type wrapper func(Invocation) Invocation

// handledExtensions are the extensions that are offered, in the order in which they begin their work (docs/forrst.md,
// section 8.6). What can do without the lock ends a call before one is taken.
var handledExtensions = []extension{
	{name: envelope.Tracing},
	{envelope.Cancellation, (*call).cancellation},
	{envelope.Deadline, (*call).deadline},
	{envelope.AtomicLock, (*call).atomicLock},
	{name: envelope.Retry},
}

// phase returns the position of an extension in the order of work, or -1 if the extension is not offered.
func phase(name string) int {
	return slices.IndexFunc(handledExtensions, func(e extension) bool { return e.name == name })
}

// HandlesExtension reports whether the façade itself does what the extension asks for. What it does not handle is for the
// function.
func HandlesExtension(urn string) bool { return phase(envelope.ExtensionName(urn)) >= 0 }

// unignorable are the standard extensions that are not offered and that must not be ignored either: without them the call
// would have effects that the caller excluded (docs/forrst.md, section 8.3).
var unignorable = []string{envelope.DryRun, envelope.Idempotency, envelope.Replay, envelope.Simulation}

// prepareExtensions checks every element of the request, in their order there, and returns what the extensions do, in the
// order of their work; nil for one that does nothing. What the server does not know is ignored, as are standard extensions
// that are hints.
func (c *call) prepareExtensions() []wrapper {
	wrappers := make([]wrapper, len(handledExtensions))
	for position := range c.request.Extensions {
		urn := c.request.Extensions[position].URN
		name := envelope.ExtensionName(urn)
		place := phase(name)
		switch {
		case place >= 0 && slices.Contains(c.function.excluded, name), c.outlivesLock(name):
			problem := envelope.Error{Code: envelope.ExtensionNotApplicable, Message: "The extension cannot be used with this function"}
			c.faults.Add(problem.At(extensionPointer(position)).With(map[string]string{"extension": urn, "function": c.request.Call.Function}))
		case place >= 0 && handledExtensions[place].prepare != nil:
			wrappers[place] = handledExtensions[place].prepare(c, position)
		case slices.Contains(unignorable, name) && !c.function.isRouted && !c.isDeclined(name, position):
			problem := envelope.Error{
				Code:    envelope.ExtensionNotSupported,
				Message: "The extension is not supported, and ignoring it would change what the call does",
			}
			c.faults.Add(problem.At(extensionPointer(position)).With(struct {
				Unsupported []string `json:"unsupported"`
				Supported   []string `json:"supported"`
			}{[]string{urn}, supportedURNs()}))
		}
	}
	return wrappers
}

// outlivesLock reports whether an extension lets the work of a routed function go on after its answer, and so after the lock
// (docs/forrst.md, section 12.12). The functions that run here take async for the hint that it is.
func (c *call) outlivesLock(name string) bool {
	return name == envelope.Async && c.function.isRouted && c.position(envelope.AtomicLock) >= 0
}

// isDeclined reports whether an element says that its extension is not asked for, so that to ignore it changes nothing.
func (c *call) isDeclined(name string, position int) bool {
	if name != envelope.DryRun {
		return false
	}
	var faults envelope.Errors
	fields := c.readOptions(position, &faults)
	return !fields.Bool("enabled", true) && len(faults) == 0
}

// position returns the position of the element of an extension in the request, or -1.
func (c *call) position(name string) int {
	return slices.IndexFunc(c.request.Extensions, func(e envelope.RequestExtension) bool {
		return envelope.ExtensionName(e.URN) == name
	})
}

// readOptions prepares to read the options of the extension at position.
func (c *call) readOptions(position int, faults *envelope.Errors) envelope.Fields {
	fields, _ := envelope.ReadObject(c.request.Extensions[position].Options, optionsPointer(position), faults)
	return fields
}

// supportedURNs returns every spelling of every extension that is handled.
func supportedURNs() []string {
	var urns []string
	for _, extension := range handledExtensions {
		urns = append(urns, envelope.ExtensionURNs(extension.name)...)
	}
	slices.Sort(urns)
	return urns
}

func extensionPointer(position int) string { return "/extensions/" + strconv.Itoa(position) }
func optionsPointer(position int) string   { return extensionPointer(position) + "/options" }
