package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// DecodeRequest reads the body of a request and checks the structure of its envelope in
// the order of docs/forrst.md, section 1.6: it must be JSON, then an object, then speak a
// known version of the protocol, and then everything else that is wrong is collected.
// What arguments and options hold is not looked at.
//
// The request is usable only if there are no errors. Its ID is set as soon as it can
// be learnt, so that a refusal can repeat it. The request refers to parts of body,
// which must not be changed while it is in use.
func DecodeRequest(body []byte) (Request, Errors) {
	members, problem := parse(body)
	if problem != nil {
		return Request{}, Errors{*problem}
	}
	var problems Errors
	envelope := Fields{members: members, code: InvalidRequest, errors: &problems}

	var request Request
	var refusal *Error
	request.Protocol, refusal = readProtocol(&envelope, &problems)
	request.ID, _ = envelope.RequiredText("id")
	if refusal != nil {
		return request, Errors{*refusal}
	}
	request.Call = readCall(&envelope, &problems)
	request.Context = envelope.Object("context")
	request.Extensions = readExtensions(&envelope, &problems)
	return request, problems
}

// parse checks that body is one JSON object and splits it into its members.
func parse(body []byte) ([]member, *Error) {
	scan := scanner{data: body}
	scan.space()
	if scan.peek() != '{' {
		if bytes.HasPrefix(body, []byte("\ufeff")) {
			return nil, unparseable(scan.fail("The body must not begin with a byte order mark"))
		}
		err := scan.document()
		if err == nil {
			return nil, new(Error{Code: InvalidRequest, Message: "The request must be a JSON object"}.At(""))
		}
		return nil, unparseable(err)
	}
	members, err := scan.members()
	if err == nil {
		err = scan.end()
	}
	if err != nil {
		return nil, unparseable(err)
	}
	return members, nil
}

func unparseable(err error) *Error {
	problem := &Error{Code: ParseError, Message: err.Error()}
	if syntax, ok := errors.AsType[*syntaxError](err); ok {
		problem.Source = &Source{Position: &syntax.position}
	}
	return problem
}

func readCall(envelope *Fields, problems *Errors) Call {
	raw, ok := envelope.require("call")
	if !ok {
		return Call{}
	}
	fields, ok := ReadObject(raw, "/call", InvalidRequest, problems)
	if !ok {
		envelope.Fail("call", "must be an object")
		return Call{}
	}
	var call Call
	call.Function, _ = fields.RequiredText("function")
	if version, ok := fields.Text("version"); ok {
		if _, ok := FunctionVersion(version); !ok {
			fields.Fail("version", "must be a semantic version such as 1.0.0")
		}
		call.Version = version
	}
	call.Arguments = fields.Object("arguments")
	return call
}

func readExtensions(envelope *Fields, problems *Errors) []RequestExtension {
	raw := envelope.Raw("extensions")
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		envelope.Fail("extensions", "must be an array of objects")
		return nil
	}
	var extensions []RequestExtension
	var seen []string
	scan := scanner{data: raw}
	index := 0
	// The scan cannot fail: raw is part of a document that was scanned before.
	_ = scan.array(func(element []byte) {
		if problems.isFull() {
			return // Nothing that is found would be told.
		}
		extension := readExtension(element, indexed("/extensions", index), &seen, problems)
		extensions = append(extensions, extension)
		index++
	})
	return extensions
}

// readExtension reads one element. Seen holds the names of standard extensions before it:
// both spellings of an extension are the same one, and of two sets of options neither can
// be preferred (docs/forrst.md, section 8.5).
func readExtension(raw json.RawMessage, pointer string, seen *[]string, problems *Errors) RequestExtension {
	fields, ok := ReadObject(raw, pointer, InvalidRequest, problems)
	if !ok {
		problems.addAt(InvalidRequest, pointer, "An extension must be an object")
		return RequestExtension{}
	}
	var extension RequestExtension
	extension.URN, _ = fields.RequiredText("urn")
	extension.Options = fields.Object("options")
	name := ExtensionName(extension.URN)
	switch {
	case name == "":
	case slices.Contains(*seen, name):
		problems.addAt(InvalidRequest, pointer, "The "+name+" extension must not be given twice")
	default:
		*seen = append(*seen, name)
	}
	return extension
}
