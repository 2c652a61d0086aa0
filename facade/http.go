package facade

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
)

const (
	// MaxRequestBytes is the largest body that is read (section 4.1).
	MaxRequestBytes = 1 << 20
	// maxDrainedBytes of a body that is too large are read and forgotten: a client
	// that is still sending when the connection closes never sees the answer.
	maxDrainedBytes = 8 << 20
	// maxHeaderID is the longest id that is repeated in a header; clients limit all
	// headers together to 8 KiB.
	maxHeaderID = 1 << 10
)

// refusal answers a request whose body is not looked at.
type refusal struct {
	status  int
	message string
}

// serveForrst answers one HTTP request with one envelope, whatever is wrong with it.
func (h *Handler) serveForrst(w http.ResponseWriter, r *http.Request) {
	start := h.config.Clock.Now()
	body, refused := receive(r)
	if refused == nil {
		response := h.answer(r, body)
		h.send(w, response, response.Status(), start)
		return
	}
	if refused.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	response := forrst.NewResponse("")
	response.Errors = forrst.Errors{{Code: forrst.InvalidRequest, Message: refused.message}}
	h.send(w, response, refused.status, start)
}

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, _ *http.Request) {
	response := forrst.NewResponse("")
	response.Errors = forrst.Errors{{Code: forrst.Forbidden, Message: "Pages of other origins must not call this service"}}
	h.send(w, response, response.Status(), h.config.Clock.Now())
}

// receive checks method, media type and size in this order and reads the body.
func receive(r *http.Request) ([]byte, *refusal) {
	switch {
	case r.Method != http.MethodPost:
		return nil, &refusal{http.StatusMethodNotAllowed, "The method must be POST"}
	case !isJSON(r.Header.Get("Content-Type")):
		return nil, &refusal{http.StatusUnsupportedMediaType, "The content type must be application/json"}
	case !isPlain(r.Header.Get("Content-Encoding")):
		return nil, &refusal{http.StatusUnsupportedMediaType, "The body must not have a content encoding"}
	}
	var body bytes.Buffer
	if size := r.ContentLength; 0 < size && size <= MaxRequestBytes {
		body.Grow(int(size) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(r.Body, MaxRequestBytes+1)); err != nil {
		return nil, &refusal{http.StatusBadRequest, "The body could not be read to its end"}
	}
	if body.Len() > MaxRequestBytes {
		// An error here only means that the client stopped sending.
		_, _ = io.CopyN(io.Discard, r.Body, maxDrainedBytes)
		return nil, &refusal{http.StatusRequestEntityTooLarge, "The body must be at most " + strconv.Itoa(MaxRequestBytes) + " bytes"}
	}
	return body.Bytes(), nil
}

// isJSON accepts any parameters, also malformed ones, and no header at all (section
// 4.1).
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return contentType == "" || strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

func isPlain(contentEncoding string) bool {
	return contentEncoding == "" || strings.EqualFold(contentEncoding, "identity")
}

// send writes a response with the headers of section 4.3.
func (h *Handler) send(w http.ResponseWriter, response *forrst.Response, status int, start time.Time) {
	header := w.Header()
	if h.config.Node != "" {
		response.Meta = &forrst.Meta{Node: h.config.Node}
		header.Set("X-Forrst-Node", h.config.Node)
	}
	if response.ID != nil && isHeaderSafe(*response.ID) {
		header.Set("X-Forrst-Request-Id", *response.ID)
	}
	if slices.ContainsFunc(response.Errors, isUnavailable) {
		header.Set("Retry-After", string(retryAfter.Value))
	}
	body := forrst.MustEncode(response)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Forrst-Duration-Ms", strconv.FormatInt(h.config.Clock.Since(start).Milliseconds(), 10))
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write(body)
}

// isHeaderSafe reports whether an id may be repeated in a header: printable ASCII
// only, so that no id starts another header or means something else to its reader, and
// no space at either end, which a reader would drop.
func isHeaderSafe(id string) bool {
	if strings.TrimSpace(id) != id {
		return false
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return len(id) <= maxHeaderID
}
