package forrst

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// merge makes the answer of a service part of the response. Nothing in it is changed
// but places in the request, which the caller numbers in another way.
func (c *call) merge(answer *envelope.Response, request forwardedRequest) (any, error) {
	c.response.Meta = answer.Meta
	for _, entry := range answer.Extensions {
		if !isOwnEntry(entry.URN) {
			c.response.Extensions = append(c.response.Extensions, entry)
		}
	}
	if len(answer.Errors) == 0 {
		if answer.Result == nil {
			return json.RawMessage("null"), nil
		}
		return answer.Result, nil
	}
	for i := range answer.Errors {
		request.relocate(answer.Errors[i].Source)
	}
	return nil, answer.Errors
}

// isOwnEntry reports whether the façade itself reports on the extension: callers look
// entries up by URN, and so there must be one. Advice on retries is the service's to
// give, if it does.
func isOwnEntry(urn string) bool {
	name := envelope.ExtensionName(urn)
	return name != envelope.Retry && phase(name) >= 0 || slices.Contains([]string{wire.FencingURN, wire.LostURN}, urn)
}

const extensionsPointer = "/extensions/"

// relocate makes a pointer to an extension of the forwarded request one to that of the
// caller's.
func (r *forwardedRequest) relocate(source *envelope.Source) {
	if source == nil || source.Pointer == nil {
		return
	}
	rest, ok := strings.CutPrefix(*source.Pointer, extensionsPointer)
	if !ok {
		return
	}
	index, below, hasMore := strings.Cut(rest, "/")
	position, err := strconv.Atoi(index)
	if err != nil || position < 0 || position >= len(r.positions) {
		return
	}
	pointer := extensionsPointer + strconv.Itoa(r.positions[position])
	if hasMore {
		pointer += "/" + below
	}
	source.Pointer = &pointer
}
