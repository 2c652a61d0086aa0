package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// Kind says what kept a call from being answered.
type Kind string

// The kinds of failures, each with what has happened.
const (
	Unreachable  Kind = "unreachable"  // there was no connection, so that the call was not sent
	Disconnected Kind = "disconnected" // the connection broke before the answer was complete
	TimedOut     Kind = "timed_out"    // the timeout of the route has passed
	NoEnvelope   Kind = "no_envelope"  // the answer is not one of the protocol, such as the page of a proxy
	TooLarge     Kind = "too_large"    // the answer has more than [MaxAnswerBytes]
	NoRoom       Kind = "no_room"      // the façade had no memory left for the answer; the function was called
	WrongID      Kind = "wrong_id"     // the answer is to another call
)

// CallError is a call that was not answered as the protocol wants it.
type CallError struct {
	Kind Kind
	// Reason says more, in words for callers: it tells nothing about the network.
	Reason string
	// Status is the HTTP status of the answer, or zero.
	Status int
	// MayRun says that the service may still be running the function, until the timeout of the route has passed at the latest.
	MayRun bool
	// IsUnsent says that the service cannot have got the call.
	IsUnsent bool

	cause error
}

// problem tells the caller.
func (f *CallError) problem(route routes.Route) *envelope.Error {
	return new(envelope.Error{
		Code:    envelope.DependencyError,
		Message: "The service of the function has failed: " + f.Reason,
	}.With(struct {
		Dependency string `json:"dependency"`
		Error      string `json:"dependency_error"`
		Kind       Kind   `json:"kind"`
		Status     int    `json:"status,omitempty"`
		MayRun     bool   `json:"may_still_run,omitempty"`
	}{route.Host, f.Reason, f.Kind, f.Status, f.MayRun}))
}

// Error implements error. Its text is for the log.
func (f *CallError) Error() string {
	if f.cause == nil {
		return f.Reason
	}
	return f.Reason + ": " + f.cause.Error()
}

// Unwrap returns the cause.
func (f *CallError) Unwrap() error { return f.cause }

// failure judges a call without an answer.
func failure(ctx context.Context, isSent bool, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout) && !isSent:
		return &CallError{Kind: Unreachable, Reason: "no connection within the timeout of the route", IsUnsent: true, cause: err}
	case errors.Is(context.Cause(ctx), errTimeout):
		return &CallError{Kind: TimedOut, Reason: "no answer within the timeout of the route", cause: err}
	case ctx.Err() != nil:
		return &CallError{Kind: Disconnected, Reason: "the call was given up", MayRun: isSent, IsUnsent: !isSent, cause: context.Cause(ctx)}
	case !isSent:
		return unreachable(err)
	}
	return disconnected(err)
}

func unreachable(cause error) *CallError {
	failure := &CallError{Kind: Unreachable, Reason: "no connection", IsUnsent: true, cause: cause}
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](cause)
	_, isName := errors.AsType[*net.DNSError](cause)
	switch {
	case isCertificate:
		failure.Reason = "the certificate is not trusted"
	case isName:
		failure.Reason = "the host name could not be resolved"
	case errors.Is(cause, syscall.ECONNREFUSED):
		failure.Reason = "connection refused"
	}
	return failure
}

func disconnected(cause error) *CallError {
	failure := &CallError{Kind: Disconnected, Reason: "the connection broke before the answer was complete", MayRun: true, cause: cause}
	switch {
	case errors.Is(cause, syscall.ECONNRESET):
		failure.Reason = "the connection was reset before the answer was complete"
	case errors.Is(cause, io.EOF), errors.Is(cause, io.ErrUnexpectedEOF):
		failure.Reason = "the connection was closed before the answer was complete"
	}
	return failure
}

// noEnvelope judges an answer that is not one of the protocol.
func noEnvelope(status int, cause error) *CallError {
	return &CallError{
		Kind:   NoEnvelope,
		Reason: fmt.Sprintf("the answer with HTTP status %d has no Forrst envelope", status),
		Status: status,
		// A gateway in between has stopped waiting; the service may not have.
		MayRun: status == http.StatusGatewayTimeout,
		cause:  cause,
	}
}
