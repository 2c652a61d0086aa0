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
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock/bodies"
	"forrst.dev/lock-operator/webhook/sender"
)

const (
	// byteCost is how much memory one byte of a review takes while the review is judged: copies of the
	// body, and the texts in it. It was measured, as the costs of values were; a test repeats that.
	byteCost = 12
	// freeBytes of each review may arrive and wait for memory without a claim: each of two Locks with
	// what the API server adds, so that such reviews never wait behind larger ones that arrive.
	freeBytes = 32 << 10
	// maxBeginning bytes of a review that is refused tell whose it is: the API server sends the objects
	// last.
	maxBeginning = 16 << 10
	// arrivalShare is the divisor of the memory that gives what the rest of larger reviews may take
	// besides until they have been judged.
	arrivalShare = 8
	// maxWait is how long a review waits for memory by default, so that most of the 5 seconds are left in
	// which the API server wants an answer.
	maxWait = 2 * time.Second
)

// Cost is what a review may cost that is judged at a path.
type Cost struct {
	// MaxBytes is the largest body that is read.
	MaxBytes int64
	// ValueBytes is how much memory one JSON value of the body takes at most once it is decoded,
	// besides its text: an empty object of two bytes can become a struct of a thousand.
	ValueBytes int64
	// Decodes reports whether the handler decodes objects of so many bytes, after and before the change;
	// zero for none. Otherwise their values cost nothing. Nil means that it decodes all.
	Decodes func(object, old int) bool
	// MaxWait is how long a review may wait for memory. It must be shorter than the timeout of the API server,
	// or the review is never counted as refused. Zero means 2 seconds.
	MaxWait time.Duration
}

// Of returns the memory that the review takes, with its body.
func (c Cost) Of(body []byte) int64 {
	o := outlineOf(body)
	return c.of(&o, len(body))
}

func (c Cost) of(o *outline, size int) int64 {
	return int64(size)*byteCost + o.decodedValues(c)*c.ValueBytes
}

// MemoryFor returns the least memory with which a review of the largest size can be judged at each of
// the paths, unless its values are too many.
func MemoryFor(reviews map[string]Cost) int64 {
	var largest int64
	for _, cost := range reviews {
		largest = max(largest, cost.MaxBytes)
	}
	return largest * byteCost * networkShare
}

// MemoryBeside returns what reviews that arrive and wait take at most, besides the memory for those that
// are judged.
func MemoryBeside(connections int, memory int64) int64 {
	return int64(connections)*freeBytes + memory/arrivalShare
}

// Refusals of a review.
var (
	errNoMemory  = errors.New("lock-operator has too many or too large reviews to judge at the moment; try again")
	errTooCostly = errors.New("the objects have more values than lock-operator can judge")
	errNotJSON   = errors.New("the review is not JSON")
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
		made, _ := r.Context().Value(connectionKey{}).(*connection)
		answered := &answer{header: http.Header{}, code: http.StatusOK}
		s.judge(answered, r, made, path, cost, handler)
		// The memory is given back: a client that does not read the answer must not keep it.
		maps.Copy(w.Header(), answered.header)
		w.WriteHeader(answered.code)
		_, _ = w.Write(answered.text.Bytes()) // An error only means that the client has gone.
	})
}

func (s *Server) judge(w http.ResponseWriter, r *http.Request, made *connection, path string, cost Cost, handler http.Handler) {
	wait, stopWaiting := context.WithTimeout(r.Context(), cmp.Or(cost.MaxWait, maxWait))
	defer stopWaiting()
	of := s.tenantOf(made)
	var body bodies.Body
	var begun beginning
	body.Init(&arrival{memory: s.arriving, of: of, made: made, announced: r.ContentLength, wait: wait}, io.TeeReader(r.Body, &begun), cost.MaxBytes)
	defer body.Forget()
	text, err := body.ReadAll(r.ContentLength)
	if err != nil {
		isRefusal := errors.Is(err, errNoMemory) || errors.Is(err, bodies.ErrTooLarge)
		if !isRefusal && !made.isClosedByServer(err) {
			err = errAbandoned
		}
		o := outlineOf(begun)
		s.refuse(w, path, cost, &o, err)
		return
	}
	o := outlineOf(text)
	needed := cost.of(&o, len(text))
	of.namespace = o.namespace.shortString()
	switch {
	case !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		err = errNotJSON // controller-runtime decodes YAML, too, whose values are not counted.
	case needed > s.memory.limitOf(of):
		err = errTooCostly
	default:
		made.enter(waiting)
		if err = s.memory.take(wait, of, needed); err != nil && r.Context().Err() != nil {
			err = errAbandoned
		}
	}
	if err != nil {
		made.enter(transferring)
		s.refuse(w, path, cost, &o, err)
		return
	}
	defer s.memory.give(of, needed)
	made.enter(judged)
	defer made.enter(transferring)
	ctx, cancel := context.WithTimeout(sender.NewContext(r.Context(), s.senderOf(made.network, of.namespace)), reviewTimeout)
	defer cancel()
	request := r.WithContext(ctx)
	request.Body = io.NopCloser(bytes.NewReader(text))
	handler.ServeHTTP(w, request)
}

// arrival is the room that a review takes from its first byte until it has been judged. It implements
// [bodies.Room].
type arrival struct {
	memory *memory
	of     tenant
	made   *connection
	// announced is how many bytes the client says that it sends; -1 if it does not.
	announced int64
	// wait ends when the review may wait no longer.
	wait context.Context // It is that of one review.

	arrived, taken int64
}

// Take implements [bodies.Room]. A verified sender sends what it announces, and waits once for room for
// all of it. Another one may announce and never send: only what has arrived counts, and it does not wait
// while it keeps a part.
func (a *arrival) Take(n int64) error {
	a.arrived += n
	size, wait := max(a.arrived, a.announced), a.wait
	if !a.of.isVerified {
		ended, end := context.WithCancel(wait)
		end()
		size, wait = a.arrived, ended
	}
	missing := size - freeBytes - a.taken
	if a.arrived <= freeBytes || missing <= 0 {
		return nil
	}
	if a.of.isVerified {
		a.made.enter(waiting)
		defer a.made.enter(transferring)
	}
	if err := a.memory.take(wait, a.of, missing); err != nil {
		return err
	}
	a.taken += missing
	return nil
}

// Give implements [bodies.Room]. It gives everything back.
func (a *arrival) Give(int64) {
	if a.taken > 0 {
		a.memory.give(a.of, a.taken)
		a.taken = 0
	}
}

// beginning keeps the first bytes of a review, which tell whose it is.
type beginning []byte

// Write implements [io.Writer].
func (b *beginning) Write(text []byte) (int, error) {
	*b = append(*b, text[:min(len(text), maxBeginning-len(*b))]...)
	return len(text), nil
}

// answer keeps the answer to a review.
type answer struct {
	header http.Header
	code   int
	text   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements [http.ResponseWriter].
func (a *answer) Write(text []byte) (int, error) { return a.text.Write(text) }

// refuse answers with a status, which the API server passes on as the reason why its call failed.
func (s *Server) refuse(w http.ResponseWriter, path string, cost Cost, o *outline, err error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: err.Error(),
	}
	switch {
	case errors.Is(err, errNoMemory):
		s.refused.WithLabelValues(noMemory).Inc()
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	case errors.Is(err, bodies.ErrTooLarge):
		status.Message = fmt.Sprintf("the review of the change has more than %d bytes, the most that lock-operator judges", cost.MaxBytes)
		fallthrough
	case errors.Is(err, errTooCostly):
		s.refused.WithLabelValues(tooLarge).Inc()
		status.Code, status.Reason = http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge
	case errors.Is(err, errNotJSON):
		s.refused.WithLabelValues(notJSON).Inc()
		status.Code, status.Reason = http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType
	default:
		status.Message = "the review could not be read to its end"
		status.Code, status.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	if request := o.request(); s.onRefused != nil && request.UserInfo.Username != "" {
		s.onRefused(Refused{Path: path, Request: request, Status: status, IsAbandoned: errors.Is(err, errAbandoned)})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // It is only kept.
}
