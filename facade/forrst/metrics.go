package forrst

import (
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Classes that metrics count functions by: callers choose the names of functions, but not
// how many series there are.
const (
	lockClass     = "lock"
	extendedClass = "vendor"
	systemClass   = "system"
	routedClass   = "routed"
)

// Outcomes that are not the code of an error.
const (
	okOutcome = "OK"
	// otherOutcome stands for the codes that routed functions make up.
	otherOutcome = "OTHER"
)

// class is empty if no function was found.
func (c *call) class() string {
	switch {
	case c.function == nil:
		return ""
	case c.function.class == "":
		return routedClass
	}
	return c.function.class
}

// outcomeOf returns one of a bounded number of texts.
func outcomeOf(response *envelope.Response) string {
	if len(response.Errors) == 0 {
		return okOutcome
	}
	switch code := response.Errors[0].Code; code {
	case envelope.ParseError, envelope.InvalidRequest, envelope.InvalidProtocolVersion, envelope.InvalidArguments,
		envelope.ExtensionNotSupported, envelope.ExtensionNotApplicable:
		return string(code)
	default:
		// Every other standard code has a status of its own.
		if code.Status() != envelope.InvalidRequest.Status() {
			return string(code)
		}
	}
	return otherOutcome
}
