package envelope

import "encoding/json"

// Request is a call to a function (docs/forrst.md, section 1.1). Encoded with
// [encoding/json], it is what a client sends.
type Request struct {
	Protocol Protocol `json:"protocol"`
	// ID names this attempt. The response repeats it. Not empty.
	ID   string `json:"id"`
	Call Call   `json:"call"`
	// Context is an object that travels with the call (docs/forrst.md, section 7), or
	// nil.
	Context    json.RawMessage    `json:"context,omitempty"`
	Extensions []RequestExtension `json:"extensions,omitempty"`
}

// Call says which function to run on what (docs/forrst.md, section 1.3).
type Call struct {
	// Function is the name of the function, in any of its spellings. Not empty.
	Function string `json:"function"`
	// Version is as sent, which [FunctionVersion] reads. Empty means the highest
	// stable version.
	Version string `json:"version,omitempty"`
	// Arguments is an object. Nil means an empty one.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// RequestExtension asks for an optional feature (docs/forrst.md, section 8.1).
type RequestExtension struct {
	// URN is as sent: the response repeats it. Not empty.
	URN string `json:"urn"`
	// Options is an object. Nil means an empty one.
	Options json.RawMessage `json:"options,omitempty"`
}
