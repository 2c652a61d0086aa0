package forrst

import (
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Classes that metrics count functions by: callers choose the names of functions, but not
// how many series there are.
const (
	lockClass     = "lock"
	extendedClass = "vendor"
	systemClass   = "system"
	routedClass   = "routed"
	unknownClass  = "unknown"
)

// Outcomes that are not the code of an error.
const (
	okOutcome = "OK"
	// otherOutcome stands for the codes that routed functions make up.
	otherOutcome = "OTHER"
)

// observe counts one answer. function is nil if none was found.
func (h *Handler) observe(function *function, response *envelope.Response, start time.Time) {
	h.metrics.Observe(classOf(function), outcomeOf(response), h.took(start))
}

func classOf(function *function) string {
	switch {
	case function == nil:
		return unknownClass
	case function.class == "":
		return routedClass
	}
	return function.class
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
