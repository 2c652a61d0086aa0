package envelope

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"forrst.dev/lock-operator/lock/strictjson"
)

// MaxErrors is the largest number of errors that are collected for one response. A large request can be wrong in many
// places; its answer need not be as large.
const MaxErrors = 100

// Error is one problem with a call (docs/forrst.md, section 5.1).
type Error struct {
	Code Code `json:"code"`
	// Message is for people. Programs go by Code and Details.
	Message string `json:"message"`
	// Source says where in the request the problem is. Nil if nowhere in particular.
	Source *Source `json:"source,omitempty"`
	// Details is a JSON object with more about the problem, or nil. It must not hold secrets such as owner tokens.
	Details json.RawMessage `json:"details,omitempty"`
}

// Source is a place in a request (docs/forrst.md, section 5.2): a pointer or, where the request is not JSON, a position.
type Source struct {
	// Pointer is an RFC 6901 pointer; "" is the whole document, nil is unset.
	Pointer *string `json:"pointer,omitempty"`
	// Position is an offset in bytes from the start of the body, nil if unset.
	Position *int `json:"position,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Source != nil && e.Source.Pointer != nil {
		return string(e.Code) + " at " + *e.Source.Pointer + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Message
}

// At returns e with a pointer to the place of the problem.
func (e Error) At(pointer string) Error {
	e.Source = &Source{Pointer: &pointer}
	return e
}

// With returns e with details, which must encode as a JSON object.
func (e Error) With(details any) Error {
	e.Details = MustEncode(details)
	return e
}

// Errors are the problems with one call. As an error value they are not empty.
type Errors []Error

// Error implements error.
func (e Errors) Error() string {
	messages := make([]string, len(e))
	for i := range e {
		messages[i] = e[i].Error()
	}
	return strings.Join(messages, "; ")
}

// Add appends a problem unless there are [MaxErrors] already.
func (e *Errors) Add(problem Error) {
	if !e.isFull() {
		*e = append(*e, problem)
	}
}

func (e *Errors) isFull() bool { return len(*e) >= MaxErrors }

func (e *Errors) addAt(code Code, pointer, message string) {
	e.Add(Error{Code: code, Message: message}.At(pointer))
}

// AddFault implements [strictjson.Faults] for arguments and options.
func (e *Errors) AddFault(fault strictjson.Fault) { e.Add(problemOf(InvalidArguments, fault)) }

// envelopeFaults implements [strictjson.Faults] for what is around arguments and options.
type envelopeFaults Errors

// AddFault implements [strictjson.Faults].
func (e *envelopeFaults) AddFault(fault strictjson.Fault) {
	(*Errors)(e).Add(problemOf(InvalidRequest, fault))
}

func problemOf(code Code, fault strictjson.Fault) Error {
	name := fault.Path[len(fault.Path)-1]
	problem := Error{Code: code, Message: name + " " + fault.Detail}.At(Pointer(fault.Base, fault.Path...))
	if fault.Extra != nil {
		problem = problem.With(fault.Extra)
	}
	return problem
}

// Pointer returns the RFC 6901 pointer to the value below parent that is reached by the member names and array indexes
// in segments. The pointer to a whole document, and so the first parent, is "".
func Pointer(parent string, segments ...string) string {
	pointer := jsontext.Pointer(parent)
	for _, segment := range segments {
		pointer = pointer.AppendToken(segment)
	}
	return string(pointer)
}
