package forrst

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/server"
)

// MaxRequestBytes is the largest body that is read (docs/forrst.md, section 4.1).
const MaxRequestBytes = 1 << 20

// namespacePart is the part of the path that names a namespace.
const namespacePart = "namespace"

// namesOfNamespaces returns those that a request names, usually none.
func namesOfNamespaces(r *http.Request) []string {
	names := r.Header.Values(wire.NamespaceHeader)
	if fromPath := r.PathValue(namespacePart); fromPath != "" {
		names = append(slices.Clip(names), fromPath)
	}
	return names
}

// jsonType is the Content-Type of every answer. It must not be changed.
var jsonType = []string{"application/json"}

// serveForrst answers one HTTP request with one envelope, whatever is wrong with it.
func (h *Handler) serveForrst(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, response: envelope.NewResponse("")}
	h.calls.Serve(w, r, &c.Call, c)
}

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, Call: server.Call{Request: r, Writer: w, Start: h.config.Clock.Now()}, response: envelope.NewResponse("")}
	c.response.Errors = envelope.Errors{{Code: envelope.Forbidden, Message: "Pages of other origins must not call this service"}}
	c.status = c.response.Status()
	c.Send()
}

// receive checks method, media type and size in this order and reads the body. It accepts a media type with any parameters,
// also malformed ones, and none at all (docs/forrst.md, section 4.1).
func (c *call) receive() ([]byte, error) {
	contentType := c.Request.Header.Get("Content-Type")
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch {
	case c.Request.Method != http.MethodPost:
		return nil, &server.RequestError{Status: http.StatusMethodNotAllowed, Message: "The method must be POST"}
	case contentType != "" && !strings.EqualFold(strings.TrimSpace(mediaType), "application/json"):
		return nil, &server.RequestError{Status: http.StatusUnsupportedMediaType, Message: "The content type must be application/json"}
	}
	return c.ReadBody(MaxRequestBytes)
}

// Send implements [server.Protocol]: it writes the response with the headers of docs/forrst.md, section 4.3. A success can
// go without its envelope.
func (c *call) Send() {
	server.BeginAnswer(c.Writer, c.Request)
	response, header := c.response, c.Writer.Header()
	if !c.isForeign {
		c.SetStatusHeaders(c.status)
		if c.status == http.StatusMethodNotAllowed {
			header.Set("Allow", http.MethodPost)
		}
	}
	if len(c.named) == 0 && c.Caller.Namespace != "" {
		header.Set(wire.NamespaceHeader, c.Caller.Namespace)
	}
	if node := response.Node(); node != "" && envelope.FitsHeader(node) { // A routed function may tell.
		header.Set("X-Forrst-Node", node)
	}
	if response.ID != nil && envelope.FitsHeader(*response.ID) {
		header.Set("X-Forrst-Request-Id", *response.ID)
	}
	if after := retryAfterOf(response.Errors); after != "" {
		header.Set("Retry-After", after)
	}
	body := response.Result
	if !c.isBare || len(response.Errors) > 0 {
		body = envelope.MustEncode(response)
	}
	header["Content-Type"] = jsonType
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Forrst-Duration-Ms", strconv.FormatInt(c.elapsed().Milliseconds(), 10))
	c.Writer.WriteHeader(c.status)
	// A client that has gone needs no answer.
	_, _ = c.Writer.Write(body)
}
