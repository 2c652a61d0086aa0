package forward

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Trace is where a call belongs in a distributed trace (docs/forrst.md, section 10.2). What the façade calls on behalf of the
// call carries ID, Baggage and State on, and has Span as parent.
type Trace struct {
	ID     string // names the trace; not empty, and any text if the caller chose it
	Parent string // the caller's part of the trace, any text; may be empty
	Span   string // the façade's own part of the trace; not empty
	// W3CID is the ID in the form that W3C Trace Context asks for. Empty means ID, if that has the form.
	W3CID   string
	Baggage json.RawMessage // an object that travels with the trace, or nil
	State   string          // the tracestate header of the call; may be empty
	Flags   string          // the two digits that end a traceparent header
}

// Traceparent returns the W3C header that carries the trace on. It reports false if the caller's ID does not fit in one.
func (t *Trace) Traceparent() (string, bool) {
	header := "00-" + cmp.Or(t.W3CID, t.ID) + "-" + t.Span + "-" + t.Flags
	if _, _, _, ok := parseTraceparent(header); !ok {
		return "", false
	}
	return header, true
}

// NewTrace returns a trace that begins here, with the ID that the caller chose or, if that is empty, a random one. It has no
// Span yet.
func NewTrace(id string) *Trace {
	if id == "" {
		id = randomHex(32)
	}
	return &Trace{ID: id, Flags: "01"} // Sampled: no earlier caller has decided against it.
}

// NewSpanID returns a random name for a part of a trace.
func NewSpanID() string { return randomHex(16) }

// TraceOfHeaders returns the trace that the headers of a request tell of, or nil. Those of the protocol are more to the point
// than the general one. It has no Span yet.
func TraceOfHeaders(header http.Header) *Trace {
	if id := header.Get("X-Forrst-Trace-Id"); id != "" {
		trace := NewTrace(id)
		trace.Parent = header.Get("X-Forrst-Span-Id")
		return trace
	}
	id, span, flags, ok := parseTraceparent(header.Get("Traceparent"))
	if !ok {
		return nil
	}
	return &Trace{ID: id, Parent: span, Flags: flags, State: strings.Join(header.Values("Tracestate"), ",")}
}

// traceparent is what the header of W3C Trace Context looks like in any version: those to come may go on behind the flags.
var traceparent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// parseTraceparent reads a traceparent header. No id is all zeros.
func parseTraceparent(header string) (id, span, flags string, ok bool) {
	parts := traceparent.FindStringSubmatch(header)
	if parts == nil || parts[1] == "ff" || parts[1] == "00" && parts[5] != "" ||
		strings.Trim(parts[2], "0") == "" || strings.Trim(parts[3], "0") == "" {
		return "", "", "", false
	}
	return parts[2], parts[3], parts[4], true
}

// randomHex returns as many random digits.
func randomHex(digits int) string {
	random := make([]byte, digits/2)
	// It never fails.
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}

// options ask the next service to belong to the trace, in the span of the call to it.
func (t *Trace) options(span string) json.RawMessage {
	return envelope.MustEncode(struct {
		TraceID      string          `json:"trace_id"`
		SpanID       string          `json:"span_id"`
		ParentSpanID string          `json:"parent_span_id"`
		Baggage      json.RawMessage `json:"baggage,omitempty"`
	}{t.ID, span, t.Span, t.Baggage})
}

// addTo adds the headers by which a trace goes on.
func (t *Trace) addTo(header http.Header, span string) {
	if envelope.FitsHeader(t.ID) {
		header.Set("X-Forrst-Trace-Id", t.ID)
		header.Set("X-Forrst-Span-Id", span)
		header.Set("X-Forrst-Parent-Span-Id", t.Span)
	}
	if parent, ok := t.Traceparent(); ok {
		header.Set("Traceparent", parent)
		if t.State != "" {
			header.Set("Tracestate", t.State)
		}
	}
}
