package forrst

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
)

const (
	// MaxRequestBytes is the largest body that is read (docs/forrst.md, section 4.1).
	MaxRequestBytes = 1 << 20
)

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
	start := h.config.Clock.Now()
	traced := h.config.Server.Tracer().Arrive(doorName, r)
	traced.BeginAuthentication()
	caller, err := server.Authenticate(r, h.config.Access)
	traced.EndAuthentication(err)
	if errors.Is(err, lock.ErrInvalid) {
		err = &httpError{http.StatusBadRequest, err.Error()}
	}
	if err != nil {
		h.refuse(w, r, &call{Handler: h, caller: caller, trace: traced}, err, start)
		return
	}
	body := h.config.Server.Limiter().Body(limits.CallerOf(r, caller.Holder()), r.Body, MaxRequestBytes)
	isLeft := false
	defer func() {
		if !isLeft {
			body.Forget()
		}
	}()
	text, err := receive(r, body)
	if err != nil {
		h.refuse(w, r, &call{Handler: h, caller: caller, trace: traced}, err, start)
		return
	}
	server.BeginCall(w, r)
	answered := h.answer(r, caller, text, body, start, traced)
	isLeft = answered.isLeft
	h.observe(answered.function, answered.response, start)
	answered.recordRefusal(r)
	if len(answered.named) == 0 && answered.caller.Namespace != "" {
		w.Header().Set(wire.NamespaceHeader, answered.caller.Namespace)
	}
	status := answered.response.Status()
	h.send(w, r, answered.response, status, start, answered.isBare)
	answered.endTrace(r.Context(), status)
}

// refuse answers a request of the caller, if it is known, whose envelope was not read.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, refused *call, err error, start time.Time) {
	response := envelope.NewResponse("")
	refused.response = response
	if errors.Is(err, lock.ErrUnavailable) {
		// Nothing has begun. So the caller may send the request again, even if the server
		// stops.
		if r.Context().Err() == nil {
			h.config.Logger.Error(err, "Failed to authenticate a caller")
		}
		response.Errors = unavailableLocks(err)
	} else {
		response.Errors = h.problems(r.Context(), err, "")
	}
	status := response.Status()
	if fault, ok := errors.AsType[*httpError](err); ok {
		status = fault.status
	}
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	case http.StatusRequestTimeout:
		// What the client still sends must not be taken for another request.
		w.Header().Set("Connection", "close")
	}
	h.observe(nil, response, start)
	refused.recordRefusal(r)
	h.send(w, r, response, status, start, false)
	refused.endTrace(r.Context(), status)
}

// took is the time since start. It is never negative, even if the clock was set back.
func (h *Handler) took(start time.Time) time.Duration { return max(0, h.config.Clock.Since(start)) }

// serveCrossOrigin refuses what a browser sends on behalf of another site's page.
func (h *Handler) serveCrossOrigin(w http.ResponseWriter, r *http.Request) {
	response := envelope.NewResponse("")
	response.Errors = envelope.Errors{{Code: envelope.Forbidden, Message: "Pages of other origins must not call this service"}}
	h.send(w, r, response, response.Status(), h.config.Clock.Now(), false)
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

// isJSON accepts any parameters, also malformed ones, and no header at all
// (docs/forrst.md, section 4.1).
func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return contentType == "" || strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

func isPlain(contentEncoding string) bool {
	return contentEncoding == "" || strings.EqualFold(contentEncoding, "identity")
}

// send writes a response with the headers of docs/forrst.md, section 4.3. A success can
// go without its envelope.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, response *envelope.Response, status int, start time.Time, isBare bool) {
	server.BeginAnswer(w, r)
	header := w.Header()
	if response.Meta != nil && response.Meta.Node != "" && envelope.FitsHeader(response.Meta.Node) {
		// A routed function tells which replica has answered.
		header.Set("X-Forrst-Node", response.Meta.Node)
	}
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
