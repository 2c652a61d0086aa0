package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/problems"
)

// maxRequestBytes is the largest body that is read: many times what all members together may have.
const maxRequestBytes = 64 << 10

// receive checks type and size and reads the body.
func receive(r *http.Request, counted *limits.Body) ([]byte, error) {
	isJSON := false
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		mediaType, _, err := mime.ParseMediaType(contentType)
		if isJSON = err == nil && mediaType == jsonType; !isJSON {
			return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json")
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, problems.New(problems.UnsupportedMediaType, "The body must not have a content encoding")
	}
	body, err := counted.ReadAll(r.ContentLength)
	_, isRefused := errors.AsType[*limits.Error](err)
	switch {
	case isRefused:
		return nil, err
	case errors.Is(err, limits.ErrTooLarge):
		return nil, problems.New(problems.BodyTooLarge, "The body must be at most "+strconv.Itoa(maxRequestBytes)+" bytes")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problems.New(problems.BodyTimeout, "The body did not arrive in time")
	case err != nil:
		return nil, problems.New(problems.InvalidRequest, "The body could not be read to its end")
	case len(body) > 0 && !isJSON:
		return nil, problems.New(problems.UnsupportedMediaType, "The content type must be application/json, and there is none")
	}
	return body, nil
}

// members reads the members of a JSON object. Each is read by its name; [members.refuseOthers] refuses
// those that no reader has asked for.
type members struct {
	values map[string]json.RawMessage
	read   []string
	// prefix begins the names of the members in a mistake.
	prefix string
	found  *mistakes
}

// parseObject returns the members of an object.
func parseObject(text []byte, prefix string, found *mistakes) (members, error) {
	m := members{values: map[string]json.RawMessage{}, prefix: prefix, found: found}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return m, errors.New("must be a JSON object")
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return m, err
		}
		name, _ := token.(string)
		if _, isKnown := m.values[name]; isKnown {
			return m, fmt.Errorf("has the member %q twice", name)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return m, err
		}
		m.values[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return m, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("must be one JSON object, with nothing after it")
	}
	return m, nil
}

// readBody returns the members of a body.
func readBody(text []byte, found *mistakes) (members, error) {
	if !utf8.Valid(text) {
		return members{}, problems.New(problems.InvalidRequest, "The body must be valid UTF-8")
	}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return members{}, problems.New(problems.InvalidRequest, "The body must not begin with a byte order mark")
	}
	m, err := parseObject(text, "", found)
	if err != nil {
		return m, problems.New(problems.InvalidRequest, "The body is not as described: "+err.Error())
	}
	return m, nil
}

// raw returns a member, or nil if it is absent. A null is the same, as at the Forrst door: many programs write it for what
// they have no value of.
func (m *members) raw(name string) json.RawMessage {
	m.read = append(m.read, name)
	if string(m.values[name]) == "null" {
		m.values[name] = nil
	}
	return m.values[name]
}

func (m *members) fail(name, detail string, value json.RawMessage) {
	mistake := FieldError{In: inBody, Field: m.prefix + name, Detail: detail}
	if value != nil {
		mistake.Value = value
	}
	m.found.add(mistake)
}

// text returns a member, empty if it is absent or no text.
func (m *members) text(name string) string {
	raw := m.raw(name)
	if raw == nil {
		return ""
	}
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		m.fail(name, "must be a text", raw)
		return ""
	}
	if isReplaced(raw, text) {
		m.fail(name, "must have only whole characters, not halves of surrogate pairs", nil)
	}
	return text
}

// isReplaced reports whether decoding has put a character in the place of one that cannot be. Two texts
// that differ there would be one key.
func isReplaced(raw json.RawMessage, text string) bool {
	const replacement = string(utf8.RuneError)
	escaped := strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	return strings.Count(text, replacement) > strings.Count(string(raw), replacement)+escaped
}

// requiredText is text for a member that must be there and not empty.
func (m *members) requiredText(name string) string {
	text := m.text(name)
	if m.values[name] == nil {
		m.fail(name, "is required", nil)
	}
	return text
}

// seconds returns a duration between the bounds, zero if it is absent or out of bounds.
func (m *members) seconds(name string, least, most time.Duration) time.Duration {
	raw := m.raw(name)
	if raw == nil {
		return 0
	}
	var number float64
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		m.fail(name, "must be a number of seconds", raw)
		return 0
	}
	// A number that is too large for the type is out of bounds, too.
	err := json.Unmarshal(raw, &number)
	low, high := least.Seconds(), most.Seconds()
	if err != nil || number < low || number > high {
		m.found.add(FieldError{
			In: inBody, Field: m.prefix + name, Detail: fmt.Sprintf("must be at least %v and at most %v seconds", low, high),
			Value: raw, Minimum: &low, Maximum: &high,
		})
		return 0
	}
	return time.Duration(math.Round(number * float64(time.Second)))
}

// integer returns an integer of 32 bits, zero if it is absent or none. As in JSON Schema, 1.0 is one.
func (m *members) integer(name string) int32 {
	raw := m.raw(name)
	if raw == nil {
		return 0
	}
	var number float64
	if json.Unmarshal(raw, &number) != nil || number != math.Trunc(number) || number < math.MinInt32 || number > math.MaxInt32 {
		low, high := float64(math.MinInt32), float64(math.MaxInt32)
		m.found.add(FieldError{
			In: inBody, Field: m.prefix + name, Detail: "must be an integer of 32 bits", Value: raw, Minimum: &low, Maximum: &high,
		})
		return 0
	}
	return int32(number)
}

// requiredSeconds is seconds for a member that must be there.
func (m *members) requiredSeconds(name string, least, most time.Duration) time.Duration {
	length := m.seconds(name, least, most)
	if m.values[name] == nil {
		low, high := least.Seconds(), most.Seconds()
		m.found.add(FieldError{In: inBody, Field: m.prefix + name, Detail: "is required", Minimum: &low, Maximum: &high})
	}
	return length
}

// object returns the members of a member, nil if it is absent or no object.
func (m *members) object(name string) *members {
	raw := m.raw(name)
	if raw == nil {
		return nil
	}
	inner, err := parseObject(raw, m.prefix+name+".", m.found)
	if err != nil {
		m.fail(name, "must be an object: "+err.Error(), nil)
		return nil
	}
	return &inner
}

// refuseOthers refuses the members that were not read.
func (m *members) refuseOthers() {
	var unknown []string
	for name := range m.values {
		if !slices.Contains(m.read, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		m.fail(name, "is not a member of this request", nil)
	}
}
