package forrst

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
)

// errTooManyStrangers refuses a network from which too many tokens came that were none.
var errTooManyStrangers = problemFor(envelope.RateLimited, "Too many requests without a valid bearer token came from this network")

// authenticate returns who has sent a request, or what to answer instead. The header
// does not hold the token any more: it goes nowhere from here.
func (h *Handler) authenticate(r *http.Request) (user.Info, *envelope.Error) {
	if h.config.Access == nil {
		return anonymous, nil
	}
	defer r.Header.Del("Authorization")
	attempt, ok := h.strangers.begin(networkOf(r), r.Header.Get("Authorization"))
	if !ok {
		return nil, errTooManyStrangers
	}
	who, err := h.config.Access.Authenticate(r)
	switch {
	case err == nil:
		attempt.succeed()
		return who, nil
	case errors.Is(err, lock.ErrUnauthenticated):
		attempt.fail()
		return nil, &envelope.Error{Code: envelope.Unauthorized, Message: err.Error()}
	case errors.Is(err, lock.ErrInvalid):
		return nil, &envelope.Error{Code: envelope.InvalidRequest, Message: err.Error()}
	}
	attempt.forgive()
	if r.Context().Err() == nil {
		h.config.Logger.Error(err, "Failed to authenticate a caller")
	}
	return nil, &unavailableError
}

// sendStranger answers a request whose sender is not known, and whose body was not read.
func (h *Handler) sendStranger(w http.ResponseWriter, problem *envelope.Error, start time.Time) {
	if problem.Code == envelope.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	response := envelope.NewResponse("")
	response.Errors = envelope.Errors{*problem}
	h.metrics.observe(nil, response, h.took(start))
	h.send(w, response, response.Status(), start, false)
}
