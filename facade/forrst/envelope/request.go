package envelope

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"forrst.dev/lock-operator/lock/strictjson"
)

// MaxDepth is how deep objects and arrays of a request may be nested. Deeper ones are refused as unparseable.
const MaxDepth = strictjson.MaxDepth

// Request is a call to a function (docs/forrst.md, section 1.1). Encoded with [encoding/json], it is what a client sends.
type Request struct {
	Protocol Protocol `json:"protocol"`
	ID       string   `json:"id"` // names this attempt, and the response repeats it; not empty
	Call     Call     `json:"call"`
	// Context is an object that travels with the call (docs/forrst.md, section 7), or nil.
	Context    json.RawMessage    `json:"context,omitempty"`
	Extensions []RequestExtension `json:"extensions,omitempty"`
}

// Call says which function to run on what (docs/forrst.md, section 1.3).
type Call struct {
	// Function is the name of the function, in any of its spellings. Not empty.
	Function string `json:"function"`
	// Version is as sent, which [FunctionVersion] reads. Empty means the highest stable version.
	Version   string          `json:"version,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object; nil means an empty one
}

// RequestExtension asks for an optional feature (docs/forrst.md, section 8.1).
type RequestExtension struct {
	URN     string          `json:"urn"`               // as sent: the response repeats it; not empty
	Options json.RawMessage `json:"options,omitempty"` // an object; nil means an empty one
}

// DecodeRequest reads the body of a request and checks the structure of its envelope in the order of docs/forrst.md,
// section 1.6: it must be JSON, then an object, then speak a known version of the protocol, and then everything else that
// is wrong is collected. What arguments and options hold is not looked at.
//
// The request is usable only if there are no errors. Its ID is set as soon as it can be learnt, so that a refusal can
// repeat it. The request refers to parts of body, which must not be changed while it is in use.
func DecodeRequest(body []byte) (Request, Errors) {
	var problems Errors
	envelope, problem := parse(body, &problems)
	if problem != nil {
		return Request{}, Errors{*problem}
	}
	var request Request
	var refusal *Error
	request.Protocol, refusal = readProtocol(&envelope)
	request.ID, _ = envelope.RequiredText("id")
	if refusal != nil {
		return request, Errors{*refusal}
	}
	envelope.Require("call")
	if call, ok := envelope.Nested("call", "must be an object"); ok {
		request.Call.Function, _ = call.RequiredText("function")
		request.Call.Version = call.Version("version")
		request.Call.Arguments = call.Object("arguments")
	}
	request.Context = envelope.Object("context")
	var seen []string
	envelope.elements("extensions", &problems, func(pointer string, element Fields) {
		urn, _ := element.RequiredText("urn")
		request.Extensions = append(request.Extensions, RequestExtension{URN: urn, Options: element.Object("options")})
		// Both spellings of a standard extension are the same, and of two sets of options neither can be preferred
		// (docs/forrst.md, section 8.5).
		if name := ExtensionName(urn); name != "" && slices.Contains(seen, name) {
			problems.addAt(InvalidRequest, pointer, "The "+name+" extension must not be given twice")
		} else {
			seen = append(seen, name)
		}
	})
	return request, problems
}

// AppendRequest appends the encoded request to dst. What comes from a request that was decoded, such as its arguments, is
// copied byte by byte, which is also quicker than [Encode].
func AppendRequest(dst []byte, request *Request) []byte {
	dst = append(append(dst, `{"protocol":`...), MustEncode(request.Protocol)...)
	dst = appendText(append(dst, `,"id":`...), request.ID)
	dst = appendText(append(dst, `,"call":{"function":`...), request.Call.Function)
	if request.Call.Version != "" {
		dst = appendText(append(dst, `,"version":`...), request.Call.Version)
	}
	dst = appendMember(dst, "arguments", request.Call.Arguments)
	dst = append(dst, '}')
	dst = appendMember(dst, "context", request.Context)
	for i := range request.Extensions {
		separator := `,"extensions":[{"urn":`
		if i > 0 {
			separator = `,{"urn":`
		}
		dst = appendText(append(dst, separator...), request.Extensions[i].URN)
		dst = appendMember(dst, "options", request.Extensions[i].Options)
		dst = append(dst, '}')
	}
	if len(request.Extensions) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendMember appends a member that is not the first of its object, unless raw is empty.
func appendMember(dst []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	dst = append(dst, `,"`+name+`":`...)
	return append(dst, raw...)
}

// appendText appends a string.
func appendText(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text) // It fails for what is not UTF-8, which no decoded text is, and then replaces that.
	return dst
}

// FitsHeader reports whether an id may be repeated in a header: at most 1 KiB, since clients limit all headers together to
// 8 KiB, of printable ASCII only, so that no id starts another header or means something else to its reader, and no space
// at either end, which a reader would drop.
func FitsHeader(id string) bool {
	isUnprintable := func(r rune) bool { return r < ' ' || r > '~' }
	return len(id) <= 1<<10 && strings.TrimSpace(id) == id && !strings.ContainsFunc(id, isUnprintable)
}
