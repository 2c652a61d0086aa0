package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"forrst.dev/lock-operator/lock/strictjson"
)

// Fields reads the members of one JSON object by name and collects what is wrong with them, each problem with its pointer
// (docs/forrst.md, section 1.5). It is not safe for concurrent use.
type Fields struct{ strictjson.Members }

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

// ReadObject prepares to read arguments or options, of which the whole is named by pointer. An empty array is an empty
// object: PHP cannot tell them apart (docs/forrst.md, section 1.3). ReadObject reports false if raw is neither; the Fields
// can be used all the same, as an empty object, which is what absent options and arguments are. If faults are
// [*Errors], they get errors with the code [InvalidArguments].
func ReadObject(raw json.RawMessage, pointer string, faults strictjson.Faults) (Fields, bool) {
	isGiven := len(raw) > 0
	if !isGiven || isEmptyArray(raw) {
		raw = emptyObject
	}
	members, err := strictjson.Parse(raw, pointer, faults)
	return Fields{members}, err == nil && isGiven
}

var emptyObject = json.RawMessage("{}")

// isEmptyArray reports whether a value that was parsed is an array without elements.
func isEmptyArray(raw json.RawMessage) bool {
	return len(raw) > 1 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// Text returns a member that must be a string and not empty. It reports false if the member is absent or wrong.
func (f *Fields) Text(name string) (string, bool) {
	if string(f.Raw(name)) == `""` {
		f.Fail(name, "must not be empty")
	}
	text := f.Members.Text(name)
	return text, text != ""
}

// RequiredText is [Fields.Text] for a member that must be there.
func (f *Fields) RequiredText(name string) (string, bool) {
	f.Require(name)
	return f.Text(name)
}

// Version returns a member that must be the version of a function, as it was sent, or "".
func (f *Fields) Version(name string) string {
	text, ok := f.Text(name)
	if _, isVersion := FunctionVersion(text); ok && !isVersion {
		f.Fail(name, "must be a semantic version such as 1.0.0")
	}
	return text
}

// Object returns a member that must be an object, or nil. Its members are not looked at. An empty array is returned as an
// empty object.
func (f *Fields) Object(name string) json.RawMessage {
	raw := f.Raw(name)
	switch {
	case raw == nil || raw[0] == '{':
		return raw
	case isEmptyArray(raw):
		return emptyObject
	}
	f.Fail(name, "must be an object")
	return nil
}

// Nested returns the fields of a member that must be an object. It reports false if it is absent or wrong, of which only
// the latter is told: by the detail, which goes on from the name.
func (f *Fields) Nested(name, detail string) (Fields, bool) {
	raw := f.Raw(name)
	if raw == nil {
		return Fields{}, false
	}
	if isEmptyArray(raw) {
		raw = emptyObject
	}
	members, err := f.Below(name, raw)
	if err != nil {
		f.Fail(name, detail)
	}
	return Fields{members}, err == nil
}

// elements passes each element of a member of an envelope that must be an array of objects.
func (f *Fields) elements(name string, problems *Errors, visit func(pointer string, element Fields)) {
	raw := f.Raw(name)
	if raw == nil {
		return
	}
	if raw[0] != '[' {
		f.Fail(name, "must be an array of objects")
		return
	}
	index := -1
	// It cannot fail: raw is part of a document that was parsed before.
	_ = strictjson.Each(raw, func(_, value []byte) {
		if index++; problems.isFull() {
			return // Nothing that is found would be told.
		}
		pointer := "/" + name + "/" + strconv.Itoa(index)
		element, ok := ReadObject(value, pointer, (*envelopeFaults)(problems))
		if !ok {
			problems.addAt(InvalidRequest, pointer, "An element must be an object")
			return
		}
		visit(pointer, element)
	})
}

// Duration returns a member that must be a duration within limits, or nil.
func (f *Fields) Duration(name string, limits DurationLimits) *Duration {
	fields, ok := f.Nested(name, `must be an object such as {"value": 30, "unit": "second"}`)
	if !ok {
		return nil
	}
	return fields.AsDuration(limits)
}

// RequiredDuration is [Fields.Duration] for a member that must be there.
func (f *Fields) RequiredDuration(name string, limits DurationLimits) *Duration {
	f.Require(name)
	return f.Duration(name, limits)
}
