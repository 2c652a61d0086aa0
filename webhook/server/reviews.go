package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/webhook/sender"
)

const (
	// freeBytes of each review may arrive and wait for memory without a claim: each of two Locks with
	// what the API server adds, so that such reviews never wait behind larger ones that arrive.
	freeBytes = 32 << 10
	// arrivalShare is the divisor of the memory that gives what larger reviews may take besides until they have been judged.
	arrivalShare = 8
	// arrivalTimeout is how long a larger review may take to arrive when it has room, if its client may be anybody: shorter than
	// the others wait for that room.
	arrivalTimeout = time.Second
	// maxWait is how long a review waits for memory by default, so that most of the 5 seconds are left in
	// which the API server wants an answer.
	maxWait = 2 * time.Second
	// maxDrainedBytes of a body that is refused are read and forgotten: a client that is still sending when the connection closes
	// never sees the answer.
	maxDrainedBytes = 8 << 20
)

// Cost is what a review may cost that is judged at a path.
type Cost struct {
	// MaxBytes is the largest body that is read.
	MaxBytes int64
	// ByteCost is how much memory each byte of it may take while the review is judged, whatever its content: an empty object of
	// two bytes can become a struct of a thousand.
	ByteCost int64
	// MaxWait is how long a review may wait for memory. It must be shorter than the timeout of the API server,
	// or the review is never counted as refused. Zero means 2 seconds.
	MaxWait time.Duration
}

// MemoryFor returns the least memory with which an API server that is verified can have a review of the largest size judged at
// each of the paths.
func MemoryFor(reviews map[string]Cost) (most int64) {
	for _, cost := range reviews {
		most = max(most, cost.MaxBytes*cost.ByteCost)
	}
	return most
}

// MemoryBeside returns what reviews that arrive and wait take at most, besides the memory for those that
// are judged.
func MemoryBeside(connections int, memory int64) int64 {
	return int64(connections)*freeBytes + memory/arrivalShare
}

// Refusals of a review.
var (
	errNoMemory = errors.New("lock-operator has too many or too large reviews to judge at the moment; try again")
	errTooLarge = errors.New("the review of the change is too large")
	errNotJSON  = errors.New("the review is not JSON")
	// errAbandoned is none: the client left while it sent the review, or while that waited.
	errAbandoned = errors.New("the client has left")
)

// Refused is a review that was refused before it was judged.
type Refused struct {
	// Path is where it was sent.
	Path string
	// Request is what the beginning of its text says of it: user, operation, namespace, name, and
	// whether it is a dry run. What it does not say is empty.
	Request *admissionv1.AdmissionRequest
	// Status is the answer.
	Status metav1.Status
	// IsAbandoned says that the client left before the review could be judged: it was not refused, but not
	// judged either.
	IsAbandoned bool
}

// OnRefused sets what is called with each review that is refused before it is judged, or abandoned by its
// client, and tells whose it is. It must be set before the server starts.
func (s *Server) OnRefused(call func(Refused)) { s.onRefused = call }

// bounded returns the handler with reviews that cost no more than they may. It has read them.
func (s *Server) bounded(path string, cost Cost, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered := &answer{inner: w, header: http.Header{}, code: http.StatusOK}
		if text, err := s.judge(answered, r, cost, handler); err != nil {
			s.refuse(answered, path, text, err)
		}
		// The memory is given back: a client that does not read the answer must not keep it.
		maps.Copy(w.Header(), answered.header)
		w.WriteHeader(answered.code)
		_, _ = w.Write(answered.text.Bytes()) // An error only means that the client has gone.
	})
}

// judge reads the review, and has the handler answer it once there is memory for it. The error says why it did not, and the text
// is what has been read.
func (s *Server) judge(w http.ResponseWriter, r *http.Request, cost Cost, handler http.Handler) ([]byte, error) {
	made, of := listener.Of(r.Context()), tenant{}
	if s.isVerifying() {
		release := made.Hold(true)
		defer release()
	} else {
		of.network = made.Network()
	}
	wait, stopWaiting := context.WithTimeout(r.Context(), cmp.Or(cost.MaxWait, maxWait))
	defer stopWaiting()
	text, arrived, err := s.read(wait, w, r, of, s.largest(of, cost))
	if arrived > 0 {
		defer s.arriving.give(of, arrived)
	}
	switch {
	case err != nil:
		return text, err
	case !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return text, errNotJSON // controller-runtime decodes YAML, too, whose references may grow without a bound.
	}
	release := made.Hold(false) // It is the server that keeps it waiting.
	defer release()
	needed := int64(len(text)) * cost.ByteCost
	of.namespace = requestOf(text).Namespace
	if err := s.memory.take(wait, of, needed); err != nil {
		if r.Context().Err() != nil {
			err = errAbandoned
		}
		return text, err
	}
	defer s.memory.give(of, needed)
	ctx, cancel := context.WithTimeout(sender.NewContext(r.Context(), s.senderOf(of)), reviewTimeout)
	defer cancel()
	request := r.WithContext(ctx)
	request.Body = io.NopCloser(bytes.NewReader(text))
	handler.ServeHTTP(w, request)
	return text, nil
}

// largest returns the size of the largest body that is judged.
func (s *Server) largest(of tenant, cost Cost) int64 {
	return min(cost.MaxBytes, s.memory.limitOf(of)/cost.ByteCost)
}

// read returns the body, and how much it has taken of the room for what arrives, for the whole of the body: more than a few bytes of
// it are read only then. A body that is refused is read to its end and forgotten, but for its beginning.
func (s *Server) read(wait context.Context, w http.ResponseWriter, r *http.Request, of tenant, most int64) (text []byte, taken int64, err error) {
	defer func() {
		if errors.Is(err, errTooLarge) || errors.Is(err, errNoMemory) {
			_, _ = io.CopyN(io.Discard, r.Body, maxDrainedBytes) // An error only means that the client stopped sending.
		}
	}()
	text, err = io.ReadAll(io.LimitReader(r.Body, min(freeBytes, most)+1))
	switch {
	case err != nil:
		return text, 0, failureOf(err)
	case int64(len(text)) > most || r.ContentLength > most:
		return text, 0, tooLargeFor(most)
	case int64(len(text)) <= freeBytes:
		return text, 0, nil
	}
	if taken = r.ContentLength; taken < 0 {
		taken = most
	}
	if err := s.arriving.take(wait, of, taken); err != nil {
		return text, 0, err
	}
	if !s.isVerifying() {
		arriveWithin(w, arrivalTimeout) // The server ends this bound when it has read the body.
	}
	rest := bytes.NewBuffer(append(make([]byte, 0, taken+bytes.MinRead+1), text...))
	_, err = rest.ReadFrom(io.LimitReader(r.Body, most+1-int64(len(text))))
	switch {
	case err != nil:
		return rest.Bytes(), taken, failureOf(err)
	case int64(rest.Len()) > most:
		return rest.Bytes(), taken, tooLargeFor(most)
	}
	return rest.Bytes(), taken, nil
}

func tooLargeFor(most int64) error {
	return fmt.Errorf("%w: it has more than %d bytes, the most that lock-operator judges", errTooLarge, most)
}

// failureOf tells a client that has left from one that is too slow.
func failureOf(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return errAbandoned
}

// answer keeps the answer to a review.
type answer struct {
	inner  http.ResponseWriter
	header http.Header
	code   int
	text   bytes.Buffer
}

// Unwrap has an [http.ResponseController] set the deadlines of the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.inner }

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements [http.ResponseWriter].
func (a *answer) Write(text []byte) (int, error) { return a.text.Write(text) }

// refuse answers with a status, which the API server passes on as the reason why its call failed.
func (s *Server) refuse(w http.ResponseWriter, path string, text []byte, err error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: err.Error(),
	}
	switch {
	case errors.Is(err, errNoMemory):
		s.refused.WithLabelValues(noMemory).Inc()
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	case errors.Is(err, errTooLarge):
		s.refused.WithLabelValues(tooLarge).Inc()
		status.Code, status.Reason = http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge
	case errors.Is(err, errNotJSON):
		s.refused.WithLabelValues(notJSON).Inc()
		status.Code, status.Reason = http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType
	default:
		status.Message = "the review could not be read to its end"
		status.Code, status.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	if request := requestOf(text); s.onRefused != nil && request.UserInfo.Username != "" {
		s.onRefused(Refused{Path: path, Request: request, Status: status, IsAbandoned: errors.Is(err, errAbandoned)})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // It is only kept.
}
