package envelope

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Fields reads the members of one JSON object by name and collects what is wrong with
// them, each problem with its pointer. For every member that may be left out, null means
// the same as leaving it out (docs/forrst.md, section 1.5). A member that is wrong reads
// as if it were absent, so that reading can go on and find more.
//
// A Fields comes from [ReadObject] and is not safe for concurrent use.
type Fields struct {
	members []member
	pointer string
	// child is the name of the object below pointer, or "" if pointer leads to it. Their
	// pointer is seldom needed.
	child  string
	code   Code
	errors *Errors
}

type member struct {
	// name is without quotes and escapes.
	name  []byte
	value json.RawMessage
}

// ReadObject prepares to read the object raw. An empty array is an empty object: PHP
// cannot tell them apart (docs/forrst.md, section 1.3). ReadObject reports false if raw
// is neither; the Fields can be used all the same, as an empty object, which is what
// absent options and arguments are. Problems get the code and a pointer that begins with
// pointer, and are added to errors.
func ReadObject(raw json.RawMessage, pointer string, code Code, errors *Errors) (Fields, bool) {
	fields := Fields{pointer: pointer, code: code, errors: errors}
	if len(raw) == 0 || raw[0] != '{' {
		return fields, isEmptyArray(raw)
	}
	scan := scanner{data: raw}
	var err error
	fields.members, err = scan.members()
	return fields, err == nil
}

// members reads an object.
func (s *scanner) members() ([]member, error) {
	members := make([]member, 0, 6)
	err := s.object(func(quoted, value []byte) {
		members = append(members, member{unquote(quoted), value})
	})
	return members, err
}

// Pointer returns the pointer to a member of the object.
func (f *Fields) Pointer(name string) string {
	if f.child != "" {
		return Pointer(f.pointer, f.child, name)
	}
	return Pointer(f.pointer, name)
}

// Fail adds a problem with the named member. Message goes on from the name, as in
// "must be a string".
func (f *Fields) Fail(name, message string) {
	f.errors.addAt(f.code, f.Pointer(name), name+" "+message)
}

// Raw returns the value of a member as it was sent, or nil if it is absent or null.
func (f *Fields) Raw(name string) json.RawMessage {
	raw, _ := f.find(name)
	return raw
}

// has reports whether a member is there, be it null.
func (f *Fields) has(name string) bool {
	return slices.ContainsFunc(f.members, func(m member) bool { return string(m.name) == name })
}

// find is Raw; it reports false if it has added an error.
func (f *Fields) find(name string) (raw json.RawMessage, ok bool) {
	found := false
	for _, member := range f.members {
		if string(member.name) != name {
			continue
		}
		if found {
			f.failTwice(name)
			return nil, false
		}
		raw, found = member.value, true
	}
	if string(raw) == "null" {
		return nil, true
	}
	return raw, true
}

// failTwice adds a problem with a member that is given twice, unless it was read before
// and so has been told already.
func (f *Fields) failTwice(name string) {
	problem := Error{Code: f.code, Message: name + " must not be given twice"}.At(f.Pointer(name))
	isSame := func(other Error) bool { return other.Error() == problem.Error() }
	if !slices.ContainsFunc(*f.errors, isSame) {
		f.errors.Add(problem)
	}
}

// require is find for a member that must be there.
func (f *Fields) require(name string) (raw json.RawMessage, ok bool) {
	raw, ok = f.find(name)
	if ok && raw == nil {
		f.Fail(name, "is required")
		return nil, false
	}
	return raw, ok
}

// Text returns a member that, if it is there, must be a string and not empty. It
// reports false if the member is absent or wrong.
func (f *Fields) Text(name string) (string, bool) {
	raw, _ := f.find(name)
	if raw == nil {
		return "", false
	}
	return f.text(name, raw)
}

// RequiredText is [Fields.Text] for a member that must be there.
func (f *Fields) RequiredText(name string) (string, bool) {
	raw, ok := f.require(name)
	if !ok {
		return "", false
	}
	return f.text(name, raw)
}

func (f *Fields) text(name string, raw json.RawMessage) (string, bool) {
	text, ok := decodeText(raw)
	switch {
	case !ok:
		f.Fail(name, "must be a string")
	case text == "":
		f.Fail(name, "must not be empty")
	}
	return text, text != ""
}

// Bool returns a member that, if it is there, must be a boolean. Absent or wrong, it
// is fallback.
func (f *Fields) Bool(name string, fallback bool) bool {
	raw, _ := f.find(name)
	switch string(raw) {
	case "":
		return fallback
	case "true":
		return true
	case "false":
		return false
	}
	f.Fail(name, "must be true or false")
	return fallback
}

// PositiveInteger returns a member that, if it is there, must be an integer from 1 to 2⁶³-1. Absent or
// wrong, it is zero.
func (f *Fields) PositiveInteger(name string) int64 {
	raw, _ := f.find(name)
	if raw == nil {
		return 0
	}
	number, ok := wholeNumber(raw)
	if !ok || number <= 0 {
		f.Fail(name, "must be an integer of at least 1")
		return 0
	}
	return number
}

// Integer returns a member that, if it is there, must be an integer of 32 bits. Absent or wrong, it is zero.
func (f *Fields) Integer(name string) int32 {
	raw, _ := f.find(name)
	if raw == nil {
		return 0
	}
	number, ok := wholeNumber(raw)
	if !ok || number < math.MinInt32 || number > math.MaxInt32 {
		f.Fail(name, "must be an integer of 32 bits, such as 100 or -5")
		return 0
	}
	return int32(number)
}

// wholeNumber reports whether the value is an integer of 64 bits. As in JSON Schema, 1.0 and 1e1 are integers, here up to 2⁵³.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	if number, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return number, true
	}
	var number float64
	if raw[0] == 'n' || json.Unmarshal(raw, &number) != nil {
		return 0, false
	}
	return int64(number), number == math.Trunc(number) && math.Abs(number) < 1<<53
}

// Object returns a member that, if it is there, must be an object, or nil. Its
// members are not looked at. An empty array is returned as an empty object.
func (f *Fields) Object(name string) json.RawMessage {
	raw, _ := f.find(name)
	switch {
	case raw == nil || raw[0] == '{':
		return raw
	case isEmptyArray(raw):
		return json.RawMessage("{}")
	}
	f.Fail(name, "must be an object")
	return nil
}

// Duration returns a member that, if it is there, must be a duration within limits,
// or nil.
func (f *Fields) Duration(name string, limits DurationLimits) *Duration {
	raw, _ := f.find(name)
	if raw == nil {
		return nil
	}
	return f.duration(name, raw, limits)
}

// RequiredDuration is [Fields.Duration] for a member that must be there.
func (f *Fields) RequiredDuration(name string, limits DurationLimits) *Duration {
	raw, ok := f.require(name)
	if !ok {
		return nil
	}
	return f.duration(name, raw, limits)
}

// AsDuration returns the object itself as a duration, or nil if it is none within
// limits.
func (f *Fields) AsDuration(limits DurationLimits) *Duration { return readDuration(f, limits) }

func (f *Fields) duration(name string, raw json.RawMessage, limits DurationLimits) *Duration {
	parent := f.pointer
	if f.child != "" {
		parent = Pointer(f.pointer, f.child)
	}
	fields, ok := ReadObject(raw, parent, f.code, f.errors)
	fields.child = name
	if !ok {
		f.Fail(name, `must be an object such as {"value": 30, "unit": "second"}`)
		return nil
	}
	return readDuration(&fields, limits)
}

// isEmptyArray reports whether raw is an array without elements.
func isEmptyArray(raw json.RawMessage) bool {
	if len(raw) == 0 || raw[0] != '[' {
		return false
	}
	scan := scanner{data: raw}
	isEmpty := true
	err := scan.array(func([]byte) { isEmpty = false })
	return err == nil && isEmpty
}

// indexed returns the pointer to an element of an array.
func indexed(pointer string, index int) string {
	return pointer + "/" + strconv.Itoa(index)
}
