package facade

import (
	"slices"
	"strconv"

	"forrst.dev/lock-operator/facade/forrst"
)

// extension prepares what an extension does around the function of a call. It is
// given the position of its element in the request and must have no effect yet.
type extension func(c *call, position int) (wrapper, forrst.Errors)

// handledExtensions are the extensions that are offered, by name.
var handledExtensions = map[string]extension{forrst.AtomicLock: (*call).atomicLock}

// wrapper lets an extension do its work before and after the function.
type wrapper func(Invocation) Invocation

// unignorable are the standard extensions that are not offered and that must not be
// ignored either: without them the call would have effects that the caller excluded
// (section 8.3).
var unignorable = []string{forrst.DryRun, forrst.Idempotency, forrst.Replay, forrst.Simulation}

// prepareExtension prepares one element of the request. What the server does not know
// is ignored, as are standard extensions that are hints.
func (c *call) prepareExtension(position int) (wrapper, forrst.Errors) {
	name := forrst.ExtensionName(c.request.Extensions[position].URN)
	prepare, isHandled := handledExtensions[name]
	switch {
	case isHandled && slices.Contains(c.function.Excluded, name):
		return nil, forrst.Errors{c.notApplicable(position)}
	case isHandled:
		return prepare(c, position)
	case slices.Contains(unignorable, name):
		return nil, forrst.Errors{c.notSupported(position)}
	}
	return nil, nil
}

func (c *call) notApplicable(position int) forrst.Error {
	return forrst.Error{
		Code:    forrst.ExtensionNotApplicable,
		Message: "The extension cannot be used with this function",
	}.At(extensionPointer(position)).With(struct {
		Extension string `json:"extension"`
		Function  string `json:"function"`
	}{c.request.Extensions[position].URN, c.request.Call.Function})
}

func (c *call) notSupported(position int) forrst.Error {
	return forrst.Error{
		Code:    forrst.ExtensionNotSupported,
		Message: "The extension is not supported, and ignoring it would change what the call does",
	}.At(extensionPointer(position)).With(struct {
		Unsupported []string `json:"unsupported"`
		Supported   []string `json:"supported"`
	}{[]string{c.request.Extensions[position].URN}, supportedURNs()})
}

// supportedURNs returns every spelling of every extension that is handled.
func supportedURNs() []string {
	var urns []string
	for name := range handledExtensions {
		urns = append(urns, forrst.ExtensionURNs(name)...)
	}
	slices.Sort(urns)
	return urns
}

func extensionPointer(position int) string {
	return "/extensions/" + strconv.Itoa(position)
}
