package rest

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
)

// Headers of this door.
const (
	idempotencyKeyHeader = "Idempotency-Key"
	ifMatchHeader        = "If-Match"
)

// checkAccepted returns a problem unless the caller takes answers of the type that the operation has.
func (c *call) checkAccepted() error {
	offered := jsonType
	if c.operation.isStream {
		offered = wire.EventStream
	}
	// Who asks to hold a lock knows what to expect: curl's --json accepts JSON alone.
	if accepts(c.Request.Header, offered) || c.operation.isStream && c.operation.hasBody && accepts(c.Request.Header, jsonType) {
		return nil
	}
	detail := "The answer has the type " + offered
	if !c.operation.isStream && accepts(c.Request.Header, wire.EventStream) {
		detail += "; events need the parameter watch=true or hold=true"
	}
	return problems.New(problems.NotAcceptable, detail)
}

// accepts reports whether the Accept header permits a type. The most specific range that matches it
// decides.
func accepts(header http.Header, offered string) bool {
	given := header.Values("Accept")
	if len(given) == 0 {
		return true
	}
	major, _, _ := strings.Cut(offered, "/")
	best, accepted := -1, false
	for each := range strings.SplitSeq(strings.Join(given, ","), ",") {
		mediaType, parameters, err := mime.ParseMediaType(each)
		if err != nil {
			continue
		}
		rank := map[string]int{"*/*": 0, major + "/*": 1, offered: 2}
		if precision, matches := rank[mediaType]; matches && precision > best {
			weight, err := strconv.ParseFloat(parameters["q"], 64)
			best, accepted = precision, parameters["q"] == "" || err == nil && weight > 0
		}
	}
	return accepted
}

// entityTag returns the strong entity tag of a lock: each write of the object gives it another one.
func entityTag(held *v1alpha1.Lock) string { return `"` + held.ResourceVersion + `"` }

// maxEntityTags bounds what a conditional header may list.
const maxEntityTags = 16

// entityTags are those of a conditional header.
type entityTags struct {
	// isAny says that any tag matches.
	isAny bool
	tags  []string
}

// parseEntityTags reads If-Match or If-None-Match, and reports whether it is well-formed. In If-Match a weak tag counts
// too, unlike in RFC 9110 (13.1.1): proxies that compress weaken tags, and one names a version of the lock all the same.
func parseEntityTags(values []string) (entityTags, bool) {
	text := strings.TrimSpace(strings.Join(values, ","))
	if text == "*" {
		return entityTags{isAny: true}, true
	}
	var found entityTags
	for text != "" {
		opaque, ok := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
		if !ok {
			return entityTags{}, false
		}
		opaque, rest, ok := strings.Cut(opaque, `"`)
		if !ok || len(found.tags) == maxEntityTags {
			return entityTags{}, false
		}
		found.tags = append(found.tags, `"`+opaque+`"`)
		rest = strings.TrimSpace(rest)
		if text = strings.TrimSpace(strings.TrimPrefix(rest, ",")); rest != "" && rest[0] != ',' {
			return entityTags{}, false
		}
	}
	return found, len(found.tags) > 0
}

// refuseConditions refuses the headers that make a request depend on the lock that is held: a caller that
// sends one to an operation without such a condition would rely on it.
func (c *call) refuseConditions(detail string, found *mistakes) {
	for _, header := range []string{locktoken.Header, ifMatchHeader} {
		if len(c.Request.Header.Values(header)) > 0 {
			found.Add(FieldError{In: inHeader, Field: header, Detail: detail})
		}
	}
}

// readLastEventID returns the id of the event from which a stream goes on, empty if none is given.
func (c *call) readLastEventID(found *mistakes) string {
	given := c.Request.Header.Values(wire.LastEventID)
	if len(given) == 0 {
		return ""
	}
	if _, err := strconv.ParseUint(given[0], 10, 64); err != nil || len(given) > 1 {
		found.Add(FieldError{In: inHeader, Field: wire.LastEventID, Detail: "must be the id of an event, given once"})
	}
	return given[0]
}

// isNotModified reports whether the caller has the representation with this strong tag already, by its
// If-None-Match.
func (c *call) isNotModified(tag string) bool {
	values := c.Request.Header.Values("If-None-Match")
	if len(values) == 0 {
		return false
	}
	known, ok := parseEntityTags(values)
	if !ok {
		return false
	}
	return known.isAny || slices.Contains(known.tags, tag)
}
