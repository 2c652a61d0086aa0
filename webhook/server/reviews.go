package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock/bodies"
)

// byteCost is how much memory one byte of a review takes while the review is judged: copies of the
// body, and the texts in it. It was measured, as the costs of values were; a test repeats that.
const byteCost = 12

// Cost is what a review may cost that is judged at a path.
type Cost struct {
	// MaxBytes is the largest body that is read.
	MaxBytes int64
	// ValueBytes is how much memory one JSON value of the body takes at most once it is decoded,
	// besides its text: an empty object of two bytes can become a struct of a thousand.
	ValueBytes int64
}

// Of returns the memory that the review takes, with its body.
func (c Cost) Of(body []byte) int64 {
	return int64(len(body))*byteCost + values(body)*c.ValueBytes
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

// values returns how many values the JSON text has at most.
func values(text []byte) int64 {
	var count int64
	isInString := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			isInString = !isInString
		case '\\':
			i++ // In no other place than a string, if the text is JSON.
		case '{', '[', ',':
			if !isInString {
				count++
			}
		}
	}
	return count
}

// Refusals of a review.
var (
	errNoMemory  = errors.New("lock-operator has too many or too large reviews to judge at the moment; try again")
	errTooCostly = errors.New("the objects have more values than lock-operator can judge")
)

// bounded returns the handler with reviews that cost no more than they may. It has read them.
func (s *Server) bounded(cost Cost, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share, _ := r.Context().Value(networkKey{}).(*network)
		body := share.memory.Body(r.Body, cost.MaxBytes)
		defer body.Forget()
		text, err := body.ReadAll(r.ContentLength)
		if err == nil {
			err = s.reserve(body, cost.Of(text), int64(len(text)))
		}
		if err != nil {
			s.refuse(w, cost, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
		defer cancel()
		judged := r.WithContext(ctx)
		judged.Body = io.NopCloser(bytes.NewReader(text))
		handler.ServeHTTP(w, judged)
	})
}

// reserve sets memory aside for the decoded review, whose text is kept already. In a budget of body
// bytes, each stands for the memory that it costs.
func (s *Server) reserve(body *bodies.Body, total, kept int64) error {
	total = (total + byteCost - 1) / byteCost
	if total > s.options.MaxMemory/byteCost/networkShare {
		return errTooCostly
	}
	return body.Take(total - kept)
}

// refuse answers with a status, which the API server passes on as the reason why its call failed.
func (s *Server) refuse(w http.ResponseWriter, cost Cost, err error) {
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
	default:
		status.Message = "the review could not be read to its end"
		status.Code, status.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// An error only means that the client has gone.
	_ = json.NewEncoder(w).Encode(status)
}
