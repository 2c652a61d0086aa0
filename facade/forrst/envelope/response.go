package envelope

import (
	"encoding/json"
	"net/http"
)

// Response answers a [Request] (docs/forrst.md, section 1.4). Either Errors is empty and
// Result is what the function returned, which may be null, or Result is nil.
type Response struct {
	// Protocol is what the server speaks.
	Protocol Protocol `json:"protocol"`
	// ID is that of the request, or nil if it could not be learnt.
	ID *string `json:"id"`
	// Result is written as null if it is nil.
	Result     json.RawMessage     `json:"result"`
	Errors     Errors              `json:"errors,omitempty"`
	Extensions []ResponseExtension `json:"extensions,omitempty"`
	// Meta is about the processing of the call, or nil.
	Meta *Meta `json:"meta,omitempty"`
}

// ResponseExtension reports on an optional feature (docs/forrst.md, section 8.1). Clients
// look entries up by URN; their order means nothing.
type ResponseExtension struct {
	// URN is the one of the request.
	URN string `json:"urn"`
	// Data is an object, or nil.
	Data json.RawMessage `json:"data,omitempty"`
}

// NewResponse returns a response without result or errors to the request with the
// id. An empty id means that it could not be learnt.
func NewResponse(id string) *Response {
	response := &Response{Protocol: Protocol{Name: ProtocolName, Version: ProtocolVersion}}
	if id != "" {
		response.ID = &id
	}
	return response
}

// Status returns the HTTP status that mirrors the response (docs/forrst.md, section 4.2):
// 200 for success, that of its code for one error, and 400 for several whatever their
// codes.
func (r *Response) Status() int {
	switch len(r.Errors) {
	case 0:
		return http.StatusOK
	case 1:
		return r.Errors[0].Code.Status()
	}
	return http.StatusBadRequest
}
