package forrst

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
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

// httpError refuses a request that cannot be read.
type httpError struct {
	status  int
	message string
}

// Error implements error.
func (e *httpError) Error() string { return e.message }

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

// receive checks method, media type and size in this order and reads the body.
func receive(r *http.Request, counted *limits.Body) ([]byte, error) {
	switch {
	case r.Method != http.MethodPost:
		return nil, &httpError{http.StatusMethodNotAllowed, "The method must be POST"}
	case !isJSON(r.Header.Get("Content-Type")):
		return nil, &httpError{http.StatusUnsupportedMediaType, "The content type must be application/json"}
	case !isPlain(r.Header.Get("Content-Encoding")):
		return nil, &httpError{http.StatusUnsupportedMediaType, "The body must not have a content encoding"}
	}
	body, err := counted.ReadAll(r.ContentLength)
	_, isRefused := errors.AsType[*limits.Error](err)
	switch {
	case isRefused:
		return nil, err
	case errors.Is(err, limits.ErrTooLarge):
		return nil, &httpError{http.StatusRequestEntityTooLarge, "The body must be at most " + strconv.Itoa(MaxRequestBytes) + " bytes"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &httpError{http.StatusRequestTimeout, "The body did not arrive in time"}
	case err != nil:
		return nil, &httpError{http.StatusBadRequest, "The body could not be read to its end"}
	}
	return body, nil
}

// isJSON accepts any parameters, also malformed ones, and no header at all (docs/forrst.md, section 4.1).
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return contentType == "" || strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

func isPlain(contentEncoding string) bool {
	return contentEncoding == "" || strings.EqualFold(contentEncoding, "identity")
}

// Send implements [server.Protocol]: it writes the response with the headers of docs/forrst.md, section 4.3. A success can
// go without its envelope.
func (c *call) Send() {
	server.BeginAnswer(c.Writer, c.Request)
	response, header := c.response, c.Writer.Header()
	if !c.isForeign {
		switch c.status {
		case http.StatusUnauthorized:
			header.Set("WWW-Authenticate", "Bearer")
		case http.StatusMethodNotAllowed:
			header.Set("Allow", http.MethodPost)
		case http.StatusRequestTimeout:
			// What the client still sends must not be taken for another request.
			header.Set("Connection", "close")
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
