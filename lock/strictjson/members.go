package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Fault is what is wrong with one member.
type Fault struct {
	// Base is where the object that was parsed is, as [Parse] was told.
	Base string
	// Path are the names that lead from there to the member.
	Path []string
	// Detail goes on from the name, as in "must be a string".
	Detail string
	// Value is as sent. Nil if there is none, if it tells nothing, or if it is longer than [MaxToldValue].
	Value json.RawMessage
	// Minimum and Maximum bound a number, if they are what it breaks.
	Minimum, Maximum *float64
	// Extra is what the protocol tells beside, or nil.
	Extra any
}

// Faults collects what is wrong.
type Faults interface{ AddFault(fault Fault) }

// ErrNoObject means that a text is JSON, but no object.
var ErrNoObject = errors.New("must be a JSON object")

// Members reads the members of one JSON object by their names. A null is the same as no member: many programs write it
// for what they have no value of. A member that is wrong, or given twice, is told to [Faults] and reads as if it were
// absent, so that reading can go on and find more. Members that are not read are passed over, unless
// [Members.RefuseOthers] is called.
//
// The zero Members is an empty object, of which nothing may be required. Members are not safe for concurrent use.
type Members struct {
	list   []member
	faults Faults
	base   string
	// outer are the names that lead to the object, joined by slashes, which no name has that is read. Empty if the object
	// was parsed by itself.
	outer string
}

type member struct {
	name            []byte
	value           json.RawMessage
	isRead, isTwice bool
}

// Parse returns the members of the one object in text, which must not be changed while they are in use. The error is a
// [*SyntaxError] or [ErrNoObject]; the Members can be used all the same, as an empty object.
func Parse(text []byte, base string, faults Faults) (Members, error) {
	members := Members{base: base, faults: faults}
	err := members.parse(text)
	return members, err
}

func (m *Members) parse(text []byte) error {
	list := make([]member, 0, 6)
	err := Each(text, func(name, value []byte) {
		if name != nil {
			list = append(list, member{name: Unquote(name), value: value})
		}
	})
	if err != nil {
		return err
	}
	if bytes.TrimLeft(text, space)[0] != '{' {
		return ErrNoObject
	}
	m.list = list
	return nil
}

// Below returns the members of the object that a member is, given its value.
func (m *Members) Below(name string, value json.RawMessage) (Members, error) {
	nested := Members{base: m.base, faults: m.faults, outer: name}
	if m.outer != "" {
		nested.outer = m.outer + "/" + name
	}
	err := nested.parse(value)
	return nested, err
}

func (m *Members) path(name string) []string {
	if m.outer == "" {
		return []string{name}
	}
	return append(strings.Split(m.outer, "/"), name)
}

// MaxToldValue is how many bytes of a value are told at most: an answer repeats no large part of a request.
const MaxToldValue = 128

// Tell tells what is wrong with a member. It sets Base and Path.
func (m *Members) Tell(name string, fault Fault) {
	if len(fault.Value) > MaxToldValue {
		fault.Value = nil
	}
	fault.Base, fault.Path = m.base, m.path(name)
	m.faults.AddFault(fault)
}

// Fail tells only the detail.
func (m *Members) Fail(name, detail string) { m.Tell(name, Fault{Detail: detail}) }

// find returns a member, or nil. Of one that is given twice, which is told once, it returns neither value.
func (m *Members) find(name string) *member {
	var found *member
	for i := range m.list {
		switch each := &m.list[i]; {
		case string(each.name) != name:
		case found == nil:
			found = each
			found.isRead = true
		case !found.isTwice:
			found.isTwice, found.value, each.isRead = true, nil, true
			m.Fail(name, "must not be given twice")
		default:
			each.isRead = true
		}
	}
	return found
}

// Raw returns the value of a member as it was sent, or nil if it is absent.
func (m *Members) Raw(name string) json.RawMessage {
	if found := m.find(name); found != nil && string(found.value) != "null" {
		return found.value
	}
	return nil
}

// Has reports whether a member is there, be it null.
func (m *Members) Has(name string) bool { return m.find(name) != nil }

// Require tells if a member is absent.
func (m *Members) Require(name string) {
	if m.IsAbsent(name) {
		m.Fail(name, "is required")
	}
}

// IsAbsent reports whether a member is absent or null. One that is given twice is neither.
func (m *Members) IsAbsent(name string) bool {
	found := m.find(name)
	return found == nil || string(found.value) == "null"
}

// Text returns a member that must be a string, or "".
func (m *Members) Text(name string) string {
	raw := m.Raw(name)
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		m.Tell(name, Fault{Detail: "must be a string", Value: raw})
		return ""
	}
	return string(Unquote(raw))
}

// RequiredText is [Members.Text] for a member that must be there. It may be empty.
func (m *Members) RequiredText(name string) string {
	m.Require(name)
	return m.Text(name)
}

// Texts returns the elements of a member that must be an array of strings, or nil.
func (m *Members) Texts(name string) []string {
	raw := m.Raw(name)
	if raw == nil {
		return nil
	}
	var texts []string
	isValid := raw[0] == '['
	if isValid {
		// It cannot fail: raw is part of a document that was parsed before.
		_ = Each(raw, func(_, element []byte) {
			if isValid = isValid && element[0] == '"'; isValid {
				texts = append(texts, string(Unquote(element)))
			}
		})
	}
	if !isValid {
		m.Tell(name, Fault{Detail: "must be an array of strings", Value: raw})
		return nil
	}
	return texts
}

// IsText reports whether a member, which must be that text or absent, is there.
func (m *Members) IsText(name, text string) bool {
	raw := m.Raw(name)
	if raw == nil {
		return false
	}
	if raw[0] == '"' && string(Unquote(raw)) == text {
		return true
	}
	m.Tell(name, Fault{Detail: "must be " + strconv.Quote(text) + ", or absent", Value: raw})
	return false
}

// Bool returns a member that must be a boolean. Absent or wrong, it is fallback.
func (m *Members) Bool(name string, fallback bool) bool {
	raw := m.Raw(name)
	switch string(raw) {
	case "true", "false":
		return raw[0] == 't'
	case "":
	default:
		m.Fail(name, "must be true or false")
	}
	return fallback
}

// Integer returns a member that must be an integer of 32 bits, or zero.
func (m *Members) Integer(name string) int32 {
	raw := m.Raw(name)
	number, ok := wholeNumber(raw)
	if !ok || number < math.MinInt32 || number > math.MaxInt32 {
		m.outOfBounds(name, "must be an integer of 32 bits, such as 100 or -5", raw, math.MinInt32, math.MaxInt32)
		return 0
	}
	return int32(number)
}

// PositiveInteger returns a member that must be an integer from 1 to 2⁶³-1, or zero.
func (m *Members) PositiveInteger(name string) int64 {
	raw := m.Raw(name)
	number, ok := wholeNumber(raw)
	if raw != nil && (!ok || number <= 0) {
		m.Fail(name, "must be an integer of at least 1")
		return 0
	}
	return number
}

// wholeNumber returns a value that is an integer of 64 bits, or zero if there is none. As in JSON Schema, 1.0 and 1e1 are
// integers, here up to 2⁵³.
func wholeNumber(raw json.RawMessage) (number int64, ok bool) {
	if raw == nil {
		return 0, true
	}
	if number, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return number, true
	}
	float, err := strconv.ParseFloat(string(raw), 64)
	return int64(float), err == nil && float == math.Trunc(float) && math.Abs(float) < 1<<53
}

// IsNumber reports whether a value is a number.
func IsNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
}

// Seconds returns a member that must be a number of seconds between the bounds, or zero.
func (m *Members) Seconds(name string, least, most time.Duration) time.Duration {
	raw := m.Raw(name)
	if raw == nil {
		return 0
	}
	if !IsNumber(raw) {
		m.Tell(name, Fault{Detail: "must be a number of seconds", Value: raw})
		return 0
	}
	// A number that is too large for the type is out of bounds, too.
	number, err := strconv.ParseFloat(string(raw), 64)
	if low, high := least.Seconds(), most.Seconds(); err != nil || number < low || number > high {
		m.outOfBounds(name, fmt.Sprintf("must be at least %v and at most %v seconds", low, high), raw, low, high)
		return 0
	}
	return time.Duration(math.Round(number * float64(time.Second)))
}

// RequiredSeconds is [Members.Seconds] for a member that must be there.
func (m *Members) RequiredSeconds(name string, least, most time.Duration) time.Duration {
	if m.IsAbsent(name) {
		m.outOfBounds(name, "is required", nil, least.Seconds(), most.Seconds())
	}
	return m.Seconds(name, least, most)
}

func (m *Members) outOfBounds(name, detail string, value json.RawMessage, low, high float64) {
	if _, err := strconv.ParseFloat(string(value), 64); err != nil && IsNumber(value) {
		value = nil // Many parsers could not read an answer that has it.
	}
	m.Tell(name, Fault{Detail: detail, Value: value, Minimum: &low, Maximum: &high})
}

// Object returns the members of a member that must be an object, or nil.
func (m *Members) Object(name string) *Members {
	raw := m.Raw(name)
	if raw == nil {
		return nil
	}
	nested, err := m.Below(name, raw)
	if err != nil {
		m.Fail(name, "must be an object")
		return nil
	}
	return &nested
}

// RefuseOthers tells of the members that were not read: a misspelled one must not be ignored.
func (m *Members) RefuseOthers() {
	for i := range m.list {
		if each := &m.list[i]; !each.isRead {
			m.Fail(beginning(each.name), "is not a member of this request")
		}
	}
}
