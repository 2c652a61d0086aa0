package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ErrNoResponse means that a text is not the response to a call.
var ErrNoResponse = errors.New("not a Forrst response")

// Response answers a [Request] (docs/forrst.md, section 1.4). Either Errors is empty and Result is what the function
// returned, which may be null, or Result is nil.
type Response struct {
	Protocol   Protocol            `json:"protocol"` // what the server speaks
	ID         *string             `json:"id"`       // that of the request, or nil if it could not be learnt
	Result     json.RawMessage     `json:"result"`   // written as null if it is nil
	Errors     Errors              `json:"errors,omitempty"`
	Extensions []ResponseExtension `json:"extensions,omitempty"`
	// Meta is an object about the processing of the call rather than its outcome, or nil.
	Meta json.RawMessage `json:"meta,omitempty"`
}

// ResponseExtension reports on an optional feature (docs/forrst.md, section 8.1). Clients look entries up by URN; their
// order means nothing.
type ResponseExtension struct {
	URN  string          `json:"urn"`            // the one of the request
	Data json.RawMessage `json:"data,omitempty"` // an object, or nil
}

// NewResponse returns a response without result or errors to the request with the id. An empty id means that it could not
// be learnt.
func NewResponse(id string) *Response {
	response := &Response{Protocol: Spoken}
	if id != "" {
		response.ID = &id
	}
	return response
}

// Status returns the HTTP status that mirrors the response (docs/forrst.md, section 4.2): 200 for success, that of its code
// for one error, and 400 for several whatever their codes.
func (r *Response) Status() int {
	switch len(r.Errors) {
	case 0:
		return http.StatusOK
	case 1:
		return r.Errors[0].Code.Status()
	}
	return http.StatusBadRequest
}

// Node returns the replica that answered, or "" if the response does not tell.
func (r *Response) Node() string {
	if r.Meta == nil {
		return ""
	}
	fields, _ := ReadObject(r.Meta, "", new(Errors))
	node, _ := fields.Text("node")
	return node
}

// DecodeResponse reads the body of a response, as a client does. What the result, the details of errors and the data of
// extensions hold is not looked at; the response refers to parts of body, which must not be changed while it is in use.
//
// The error matches [ErrNoResponse]. A response that reports errors is none: see [Response.Errors].
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
	// No caller relies on it: a fault in it is no reason to lose a result.
	if raw := envelope.Raw("meta"); len(raw) > 0 && raw[0] == '{' {
		response.Meta = raw
	}
	// A response tells either of a success or of a failure (docs/forrst.md, section 1.4), which may leave its result of null out.
	switch hasErrors := envelope.Raw("errors") != nil; {
	case len(response.Errors) > 0 && response.Result != nil:
		envelope.Fail("result", "must be null beside errors")
	case hasErrors && len(response.Errors) == 0:
		envelope.Fail("errors", "must not be empty")
	case !hasErrors && !envelope.Has("result"):
		envelope.Fail("result", "is required where there are no errors")
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoResponse, problems)
	}
	return &response, nil
}

// readError reads one error. The reference implementation of the protocol sends details that are no object, so they can be
// anything. An empty text says nothing, which is no reason to lose the code.
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
