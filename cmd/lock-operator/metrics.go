package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/lock"
)

const (
	metricsPath = "/metrics"
	// metricsTokenTTL is longer than the time between two scrapes, so that most of them cost no review.
	metricsTokenTTL = time.Minute
	// maxMetricsAuthFailures is low: few clients have a reason to ask for metrics.
	maxMetricsAuthFailures = 10
	// metricsReviewTimeout bounds the review of a right.
	metricsReviewTimeout = 5 * time.Second
)

// Who asks for the metrics, and whether they may.
//
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// newMetricsHandler serves metrics to callers who may get the path. It replaces the filter of
// controller-runtime, which asks the API server about every token that is not valid, and about every
// method that a caller invents.
func newMetricsHandler(config *rest.Config, httpClient *http.Client, now clock.PassiveClock, logger logr.Logger, metrics http.Handler) (http.Handler, error) {
	tokens, err := auth.New(config, httpClient, auth.Options{TokenTTL: metricsTokenTTL})
	if err != nil {
		return nil, err
	}
	callers, err := access.New(access.Options{Access: tokens, MaxAuthFailures: maxMetricsAuthFailures, Clock: now})
	if err != nil {
		return nil, err
	}
	rights, err := auth.NewAuthorizer(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &metricsHandler{callers: callers, rights: rights, metrics: metrics, logger: logger}, nil
}

// metricsHandler authenticates and authorises before it serves metrics.
type metricsHandler struct {
	callers *access.Control
	rights  authorizer.Authorizer
	metrics http.Handler
	// logger gets what a client can cause any number of times at a high verbosity only.
	logger logr.Logger
}

// ServeHTTP implements [http.Handler].
func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Clients that may not get metrics keep no connection.
	w.Header().Set("Connection", "close")
	if r.URL.Path != metricsPath {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		return
	}
	caller, err := h.callers.Authenticate(r)
	if err != nil {
		h.refuse(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), metricsReviewTimeout)
	defer cancel()
	decision, _, err := h.rights.Authorize(ctx, authorizer.AttributesRecord{User: caller.User, Verb: "get", Path: r.URL.Path})
	switch {
	case err != nil:
		h.logger.V(1).Info("Could not review the right to metrics", "user", caller.Holder(), "error", err.Error())
		http.Error(w, "Rights cannot be reviewed at the moment", http.StatusServiceUnavailable)
	case decision != authorizer.DecisionAllow:
		http.Error(w, "Forbidden", http.StatusForbidden)
	default:
		w.Header().Del("Connection")
		release := listener.Of(r.Context()).Hold(true)
		defer release()
		h.metrics.ServeHTTP(w, r)
	}
}

// refuse answers a request whose caller is not known.
func (h *metricsHandler) refuse(w http.ResponseWriter, err error) {
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(refused.Wait().Seconds())))
		http.Error(w, refused.Reason, http.StatusTooManyRequests)
		return
	}
	switch {
	case errors.Is(err, lock.ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case errors.Is(err, lock.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		h.logger.V(1).Info("Could not review a token", "error", err.Error())
		http.Error(w, "Tokens cannot be reviewed at the moment", http.StatusServiceUnavailable)
	}
}
