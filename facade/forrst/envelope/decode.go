package envelope

import (
	"errors"
	"slices"

	"forrst.dev/lock-operator/lock/strictjson"
)

// MaxDepth is how deep objects and arrays of a request may be nested. Deeper ones are refused as unparseable.
const MaxDepth = strictjson.MaxDepth

// DecodeRequest reads the body of a request and checks the structure of its envelope in
// the order of docs/forrst.md, section 1.6: it must be JSON, then an object, then speak a
// known version of the protocol, and then everything else that is wrong is collected.
// What arguments and options hold is not looked at.
//
// The request is usable only if there are no errors. Its ID is set as soon as it can
// be learnt, so that a refusal can repeat it. The request refers to parts of body,
// which must not be changed while it is in use.
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
	request.Call = readCall(&envelope)
	request.Context = envelope.Object("context")
	request.Extensions = readExtensions(&envelope, &problems)
	return request, problems
}

// parse checks that body is one JSON object and splits it into its members.
func parse(body []byte, problems *Errors) (Fields, *Error) {
	members, err := strictjson.Parse(body, "", (*envelopeFaults)(problems))
	if syntax, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return Fields{}, &Error{Code: ParseError, Message: syntax.Message, Source: &Source{Position: &syntax.Position}}
	}
	if err != nil {
		return Fields{}, new(Error{Code: InvalidRequest, Message: "The request " + err.Error()}.At(""))
	}
	return Fields{members}, nil
}

func readCall(envelope *Fields) Call {
	envelope.Require("call")
	fields, ok := envelope.Nested("call", "must be an object")
	if !ok {
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

// readExtensions reads the extensions of a request. Both spellings of a standard one are the same, and of two sets of
// options neither can be preferred (docs/forrst.md, section 8.5).
func readExtensions(envelope *Fields, problems *Errors) []RequestExtension {
	var extensions []RequestExtension
	var seen []string
	envelope.elements("extensions", problems, func(pointer string, element Fields) {
		var extension RequestExtension
		extension.URN, _ = element.RequiredText("urn")
		extension.Options = element.Object("options")
		extensions = append(extensions, extension)
		switch name := ExtensionName(extension.URN); {
		case name == "":
		case slices.Contains(seen, name):
			problems.addAt(InvalidRequest, pointer, "The "+name+" extension must not be given twice")
		default:
			seen = append(seen, name)
		}
	})
	return extensions
}
