package forward

import (
	"slices"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// translate makes the response of the service one for the caller: without entries of the
// extensions that the façade itself reports on, since callers look entries up by URN, and
// with places in the request as the caller numbers them. Advice on retries is the
// service's to give.
func (r *request) translate(response *envelope.Response, isHandled func(urn string) bool) {
	response.Extensions = slices.DeleteFunc(response.Extensions, func(entry envelope.ResponseExtension) bool {
		return envelope.ExtensionName(entry.URN) != envelope.Retry && isHandled(entry.URN) ||
			entry.URN == wire.FencingURN || entry.URN == wire.LostURN
	})
	for i := range response.Errors {
		r.relocate(response.Errors[i].Source)
	}
}

const extensionsPointer = "/extensions/"

// relocate makes a pointer to an extension of the forwarded request one to that of the
// caller's.
func (r *request) relocate(source *envelope.Source) {
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
