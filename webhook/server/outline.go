package server

import (
	"bytes"
	"encoding/json"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// member is a member of the request of a review, as text.
type member struct {
	text []byte
	// values are how many JSON values it has at most.
	values int64
	// count is how often it occurs. The decoder takes the last one.
	count int
}

// outline is what the text of a review tells before it is decoded, in one pass and without a copy.
type outline struct {
	// values are how many JSON values the text has at most.
	values int64
	// These are complete members of the request.
	object, oldObject, namespace, name, operation, user, dryRun member
	// requests are how many requests the text has.
	requests int
	// isUnusual says that the decoder may find other members, by names that are spelled in another way
	// than the API server does.
	isUnusual bool
}

// memberOf returns where to keep the member of the name, or nil.
func (o *outline) memberOf(name []byte) *member {
	switch string(name) {
	case "object":
		return &o.object
	case "oldObject":
		return &o.oldObject
	case "namespace":
		return &o.namespace
	case "name":
		return &o.name
	case "operation":
		return &o.operation
	case "userInfo":
		return &o.user
	case "dryRun":
		return &o.dryRun
	}
	return nil
}

// The review is an object, and so is the request in it.
const (
	depthOfRequest = 1
	depthOfMembers = 2
)

// isMisspelled reports whether a decoder might take the name for another one that counts here.
func isMisspelled(name []byte) bool {
	if bytes.IndexByte(name, '\\') >= 0 {
		return true
	}
	for _, known := range []string{"request", "object", "oldObject"} {
		if string(name) != known && strings.EqualFold(string(name), known) {
			return true
		}
	}
	return false
}

// endOfString returns where the string ends whose first character is at from: at its quote, or at the end of
// the text.
func endOfString(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(text)
}

// scanner makes an outline.
type scanner struct {
	outline

	text []byte
	// depth is how many objects and arrays are open, and name the last string.
	depth int
	name  []byte
	// isRequest says that the present member of the review is its request.
	isRequest bool
	// current is the present member of the request, or nil if it does not count. It began at started, after
	// so many values.
	current      *member
	started      int
	valuesBefore int64
}

// begin begins the member whose colon is at the position.
func (s *scanner) begin(at int) {
	if s.depth > depthOfMembers {
		return
	}
	s.isUnusual = s.isUnusual || isMisspelled(s.name)
	switch {
	case s.depth == depthOfRequest:
		if s.isRequest = string(s.name) == "request"; s.isRequest {
			s.requests++
		}
	case s.depth == depthOfMembers && s.isRequest:
		s.current, s.started, s.valuesBefore = s.memberOf(s.name), at+1, s.values
	}
}

// end ends the present member before the position, unless that is within it.
func (s *scanner) end(at int) {
	if s.current != nil && s.depth == depthOfMembers {
		*s.current = member{bytes.TrimSpace(s.text[s.started:at]), s.values - s.valuesBefore, s.current.count + 1}
		s.current = nil
	}
}

// outlineOf reads the text of a review, or the beginning of one. What it says of a text that is no JSON
// is of no use, but counts no value too few of one that is.
func outlineOf(text []byte) outline {
	s := scanner{text: text}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			from := i + 1
			i = endOfString(text, from)
			s.name = text[from:i]
		case ':':
			s.begin(i)
		case '{', '[':
			s.values++
			s.depth++
		case ',':
			s.end(i)
			s.values++
		case '}', ']':
			s.end(i)
			s.depth--
		}
	}
	return s.outline
}

// decodedValues are how many values are decoded at a path of the cost.
func (o *outline) decodedValues(cost Cost) int64 {
	isKnown := !o.isUnusual && max(o.requests, o.object.count, o.oldObject.count) <= 1
	if !isKnown || cost.Decodes == nil || cost.Decodes(o.object.size(), o.oldObject.size()) {
		return o.values
	}
	return o.values - o.object.values - o.oldObject.values
}

// size returns the bytes of an object, zero if there is none.
func (m *member) size() int {
	if bytes.Equal(m.text, []byte("null")) {
		return 0
	}
	return len(m.text)
}

// maxNameBytes is more than the API server permits for a name.
const maxNameBytes = 1 << 10

// shortString returns the value of a member that is a string of the length of names, or nothing.
func (m *member) shortString() (text string) {
	if len(m.text) <= maxNameBytes {
		_ = json.Unmarshal(m.text, &text) // An error leaves it empty.
	}
	return text
}

// request returns what the text says of who asked for what. The objects are left out.
func (o *outline) request() *admissionv1.AdmissionRequest {
	request := &admissionv1.AdmissionRequest{
		Namespace: o.namespace.shortString(), Name: o.name.shortString(), Operation: admissionv1.Operation(o.operation.shortString()),
	}
	var user struct { // Groups may be many.
		Username string `json:"username"`
		UID      string `json:"uid"`
	}
	// Errors leave out what cannot be read.
	_ = json.Unmarshal(o.user.text, &user)
	_ = json.Unmarshal(o.dryRun.text, &request.DryRun)
	request.UserInfo = authenticationv1.UserInfo{Username: user.Username, UID: user.UID}
	return request
}
