package problems

import (
	"errors"
	"fmt"
	"strings"

	"forrst.dev/lock-operator/lock/strictjson"
)

// Mistakes are what is wrong with a request so far.
type Mistakes []FieldError

// maxMistakes bounds an answer to a small part of what a body can be wrong in.
const maxMistakes = 32

// Add adds a mistake, unless there are 32 already, without a text that is longer than [strictjson.MaxToldValue].
func (m *Mistakes) Add(mistake FieldError) {
	if text, ok := mistake.Value.(string); ok && len(text) > strictjson.MaxToldValue {
		mistake.Value = nil
	}
	if len(*m) < maxMistakes {
		*m = append(*m, mistake)
	}
}

// AddFault implements [strictjson.Faults] for the members of a body.
func (m *Mistakes) AddFault(fault strictjson.Fault) {
	mistake := FieldError{In: "body", Field: strings.Join(fault.Path, "."), Detail: fault.Detail, Minimum: fault.Minimum, Maximum: fault.Maximum}
	if fault.Value != nil {
		mistake.Value = fault.Value
	}
	m.Add(mistake)
}

// Problem returns all mistakes, or nil if there are none.
func (m *Mistakes) Problem() error {
	if len(*m) == 0 {
		return nil
	}
	return Invalid(*m...)
}

// ReadBody returns the members of the object that a body is. What is wrong with them is added to the mistakes.
func (m *Mistakes) ReadBody(text []byte) (strictjson.Members, error) {
	members, err := strictjson.Parse(text, "", m)
	syntax, isSyntax := errors.AsType[*strictjson.SyntaxError](err)
	switch {
	case err == nil:
		return members, nil
	case isSyntax && syntax.Pointer != "":
		field := strings.ReplaceAll(syntax.Pointer[1:], "/", ".")
		return members, Invalid(FieldError{In: "body", Field: field, Detail: "is not valid JSON: " + syntax.Message})
	case isSyntax:
		return members, New(InvalidRequest, fmt.Sprintf("The body is not valid JSON at byte %d: %s", syntax.Position, syntax.Message))
	}
	return members, New(InvalidRequest, "The body "+err.Error())
}
