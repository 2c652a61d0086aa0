package forrst

import (
	"net/http"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// setNode tells which replica has answered. Where a routed function tells which one of
// its own has done the work, that says more.
func (h *Handler) setNode(header http.Header, response *envelope.Response) {
	if response.Meta == nil {
		if h.config.Node == "" {
			return
		}
		response.Meta = &envelope.Meta{}
	}
	if response.Meta.Node == "" {
		response.Meta.Node = h.config.Node
	}
	if node := response.Meta.Node; node != "" && envelope.FitsHeader(node) {
		header.Set("X-Forrst-Node", node)
	}
}
