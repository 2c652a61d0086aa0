package forrst

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

const (
	// MaxRequestBytes is the largest body that is read (section 4.1).
	MaxRequestBytes = 1 << 20
	// maxDrainedBytes of a body that is too large are read and forgotten: a client
	// that is still sending when the connection closes never sees the answer.
	maxDrainedBytes = 8 << 20
	// maxExpectedBytes are set aside for a body that is announced. More has to come first:
	// an announcement costs the client nothing.
	maxExpectedBytes = 64 << 10
	// answerTimeout is how long the client may take to receive an answer.
	answerTimeout = 30 * time.Second
)

// jsonType is the Content-Type of every answer. It must not be changed.
var jsonType = []string{"application/json"}

// deadlines is the clock that connections judge their deadlines by.
var deadlines clock.RealClock

// refusal answers a request whose body is not looked at.
type refusal struct {
	status  int
	message string
}

// serveForrst answers one HTTP request with one envelope, whatever is wrong with it.
func (h *Handler) serveForrst(w http.ResponseWriter, r *http.Request) {
	start := h.config.Clock.Now()
	who, problem := h.authenticate(r)
	if problem != nil {
		h.sendStranger(w, problem, start)
		return
	}
	body := &countedBody{LimitedReader: io.LimitedReader{R: r.Body, N: MaxRequestBytes + 1}, budget: h.bodies}
	defer body.forget()
	text, refused := receive(r, body)
	if refused != nil {
		h.sendRefusal(w, refused, start)
		return
	}
	controller := http.NewResponseController(w)
	if r.ProtoMajor > 1 {
		// HTTP/2 would end the call with the server's timeout for writing, even before
		// there is anything to write.
		_ = controller.SetWriteDeadline(time.Time{})
	}
	answered := h.answer(r, who, text, body, start)
	// The server's timeout for writing began with the request, which may have waited since.
	// A writer that knows no deadlines has none.
	_ = controller.SetWriteDeadline(deadlines.Now().Add(answerTimeout))
	if isStopping(r.Context()) {
		// The next call should find another replica.
		w.Header().Set("Connection", "close")
	}
	h.metrics.observe(answered.function, answered.response, h.took(start))
	h.send(w, answered.response, answered.response.Status(), start, answered.isBare)
}

// sendRefusal answers a request that was not looked into.
func (h *Handler) sendRefusal(w http.ResponseWriter, refused *refusal, start time.Time) {
	switch refused.status {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	case http.StatusRequestTimeout:
		// Whatever the client still sends must not be taken for another request.
		w.Header().Set("Connection", "close")
	}
	response := envelope.NewResponse("")
	problem := envelope.Error{Code: envelope.InvalidRequest, Message: refused.message}
	if refused.status == envelope.Unavailable.Status() {
		problem.Code = envelope.Unavailable
		problem = problem.With(map[string]any{"retry_after": retryAfter})
	}
	response.Errors = envelope.Errors{problem}
	h.metrics.observe(nil, response, h.took(start))
	h.send(w, response, refused.status, start, false)
}

// took is the time since start. The clock may have been corrected meanwhile.
func (h *Handler) took(start time.Time) time.Duration { return max(0, h.config.Clock.Since(start)) }

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, _ *http.Request) {
	response := envelope.NewResponse("")
	response.Errors = envelope.Errors{{Code: envelope.Forbidden, Message: "Pages of other origins must not call this service"}}
	h.send(w, response, response.Status(), h.config.Clock.Now(), false)
}

// receive checks method, media type and size in this order and reads the body.
func receive(r *http.Request, counted *countedBody) ([]byte, *refusal) {
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
		body.Grow(int(min(size, maxExpectedBytes)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(counted)
	switch {
	case errors.Is(err, errBodies):
		counted.forget()
		forgetRest(r)
		return nil, &refusal{http.StatusServiceUnavailable, "The lock service has too much to read at the moment"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &refusal{http.StatusRequestTimeout, "The body did not arrive in time"}
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, "The body could not be read to its end"}
	}
	if body.Len() > MaxRequestBytes {
		counted.forget()
		forgetRest(r)
		return nil, &refusal{http.StatusRequestEntityTooLarge, "The body must be at most " + strconv.Itoa(MaxRequestBytes) + " bytes"}
	}
	return body.Bytes(), nil
}

// forgetRest reads what the client still sends of a body that is refused.
func forgetRest(r *http.Request) {
	// An error here only means that the client stopped sending.
	_, _ = io.CopyN(io.Discard, r.Body, maxDrainedBytes)
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

// send writes a response with the headers of section 4.3. A success can go without its
// envelope.
func (h *Handler) send(w http.ResponseWriter, response *envelope.Response, status int, start time.Time, isBare bool) {
	header := w.Header()
	h.setNode(header, response)
	if response.ID != nil && envelope.FitsHeader(*response.ID) {
		header.Set("X-Forrst-Request-Id", *response.ID)
	}
	if after := retryAfterOf(response.Errors); after != "" {
		header.Set("Retry-After", after)
	}
	body := response.Result
	if !isBare || len(response.Errors) > 0 {
		body = envelope.MustEncode(response)
	}
	header["Content-Type"] = jsonType
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Forrst-Duration-Ms", strconv.FormatInt(h.took(start).Milliseconds(), 10))
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = w.Write(body)
}
