package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNoResponse means that a text is not the response to a call.
var ErrNoResponse = errors.New("not a Forrst response")

// DecodeResponse reads the body of a response, as a client does. What the result, the
// details of errors and the data of extensions hold is not looked at; the response
// refers to parts of body, which must not be changed while it is in use.
//
// The error matches [ErrNoResponse]. A response that reports errors is none: see
// [Response.Errors].
func DecodeResponse(body []byte) (*Response, error) {
	var problems Errors
	envelope, problem := parse(body, &problems)
	if problem != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoResponse, problem.Message)
	}
	var response Response
	var refusal *Error
	response.Protocol, refusal = readProtocol(&envelope)
	if refusal != nil {
		problems.Add(*refusal)
	}
	if id, ok := envelope.Text("id"); ok {
		response.ID = &id
	}
	response.Result = envelope.Raw("result")
	envelope.elements("errors", &problems, func(_ string, element Fields) {
		response.Errors = append(response.Errors, readError(&element))
	})
	envelope.elements("extensions", &problems, func(_ string, element Fields) {
		entry := ResponseExtension{Data: element.Object("data")}
		entry.URN, _ = element.RequiredText("urn")
		response.Extensions = append(response.Extensions, entry)
	})
	// No caller relies on it: a fault here is no reason to lose a result.
	if raw := envelope.Raw("meta"); len(raw) > 0 && raw[0] == '{' {
		response.Meta = newMeta(raw)
	}
	response.checkOutcome(&envelope)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoResponse, problems)
	}
	return &response, nil
}

// checkOutcome refuses what tells neither of a success nor of a failure, or of both
// (docs/forrst.md, section 1.4). A failure may leave its result of null out.
func (r *Response) checkOutcome(envelope *Fields) {
	switch hasErrors := envelope.Raw("errors") != nil; {
	case len(r.Errors) > 0 && r.Result != nil:
		envelope.Fail("result", "must be null beside errors")
	case hasErrors && len(r.Errors) == 0:
		envelope.Fail("errors", "must not be empty")
	case !hasErrors && !envelope.Has("result"):
		envelope.Fail("result", "is required where there are no errors")
	}
}

// Extension returns the data of the entry with the URN, or nil.
func (r *Response) Extension(urn string) json.RawMessage {
	for i := range r.Extensions {
		if r.Extensions[i].URN == urn {
			return r.Extensions[i].Data
		}
	}
	return nil
}

// readError reads one error. The reference implementation of the protocol sends details
// that are no object, so they can be anything. An empty text says nothing, which is no
// reason to lose the code.
func readError(element *Fields) Error {
	code, _ := element.RequiredText("code")
	problem := Error{Code: Code(code), Details: element.Raw("details")}
	if raw := element.Raw("message"); string(raw) != `""` {
		problem.Message, _ = element.Text("message")
	}
	if raw := element.Raw("source"); raw != nil && !isEmptyArray(raw) {
		problem.Source = new(Source)
		if err := json.Unmarshal(raw, problem.Source); err != nil {
			element.Fail("source", "must be an object with a pointer or a position")
		}
	}
	return problem
}
