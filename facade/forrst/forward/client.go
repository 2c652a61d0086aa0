// Package forward calls functions that run in other services on behalf of callers of the façade.
//
// A [Client] sends a request where its route leads, and tells apart whether a call that failed may still be running. A
// [Forwarder] makes the request of a caller one of the façade, and the answer one for the caller. A [Lock] that ends with the
// function is renewed while the service may be running it, also when the caller has gone.
package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// MaxAnswerBytes is the largest answer that is read.
const MaxAnswerBytes = 10 << 20

const (
	// connectTimeout is what the protocol advises.
	connectTimeout = 5 * time.Second
	// idleTimeout is shorter than that of common servers: a call that meets the end of an idle connection fails, and may have
	// been carried out all the same.
	idleTimeout = 4 * time.Second
	// maxIdleConnections per host. The default of net/http, two, would have most calls of a busy façade begin with a handshake.
	maxIdleConnections = 1024
)

var (
	// errTimeout is the cause that ends the context of a call after the timeout of its route.
	errTimeout  = errors.New("the timeout of the route has passed")
	errTooLarge = fmt.Errorf("the answer has more than %d bytes", MaxAnswerBytes)
	errNoRoom   = errors.New("there was no room for the answer")
)

// Room is memory for answers. It is safe for concurrent use.
type Room interface {
	// Take takes so many bytes, for as long as the call lasts. The error says that there is no room, or that the call is over.
	Take(size int64) error
}

// Client calls services. It keeps connections open for later calls, starts no goroutines of its own, and is safe for
// concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a client. A nil transport is one that suits services nearby: no proxies, no compression. Redirects are
// not followed whatever the transport is: they would take a call to where no route leads.
func NewClient(transport http.RoundTripper) *Client {
	if transport == nil {
		transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSHandshakeTimeout: connectTimeout,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true,
			MaxIdleConnsPerHost: maxIdleConnections,
			IdleConnTimeout:     idleTimeout,
		}
	}
	return &Client{&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do sends the encoded request with the id to the service of a route and waits for its answer, which may report errors, or
// until the timeout of the route. It may change the header. The answer takes its memory from room. The error is a
// [*CallError]; if ctx ends, its cause is that of ctx, and the service may be running the function all the same.
//
// The answer is for this call, or for one that did not get as far as its id. It refers to memory that nothing else uses.
func (c *Client) do(ctx context.Context, route routes.Route, id string, body []byte, header http.Header, room Room) (*envelope.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, route.Timeout, errTimeout)
	defer cancel()
	isSent := false
	// The transport asks for a connection anew only if it has written nothing. The hooks run in the goroutine of this call.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { isSent = false },
		GotConn: func(httptrace.GotConnInfo) { isSent = true },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, route.URL, bytes.NewReader(body))
	if err != nil {
		return nil, unreachable(err)
	}
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, failure(ctx, isSent, err)
	}
	defer response.Body.Close()
	answer, err := read(response, room)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, &CallError{Kind: TooLarge, Reason: err.Error(), Status: response.StatusCode}
	case errors.Is(err, errNoRoom):
		return nil, &CallError{Kind: NoRoom, Reason: errNoRoom.Error(), Status: response.StatusCode, cause: err}
	case err != nil:
		return nil, failure(ctx, true, err)
	}
	return decode(response.StatusCode, answer, id)
}

// answerStep is how much room is taken at a time for an answer of unknown length.
const answerStep = 64 << 10

// read reads an answer to its end, so that the connection can be used again. The room is taken before what it is for is read:
// the service may send faster than others give room back.
func read(response *http.Response, room Room) ([]byte, error) {
	size := response.ContentLength
	if size > MaxAnswerBytes {
		return nil, errTooLarge
	}
	var body bytes.Buffer
	if size >= 0 {
		if err := takeRoom(room, size); err != nil {
			return nil, err
		}
		body.Grow(int(size) + bytes.MinRead)
		_, err := body.ReadFrom(response.Body) // It ends there: net/http goes by the length, too.
		return body.Bytes(), err
	}
	for {
		if err := takeRoom(room, answerStep); err != nil {
			return nil, err
		}
		_, err := io.CopyN(&body, response.Body, answerStep)
		switch {
		case body.Len() > MaxAnswerBytes:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return body.Bytes(), nil
		case err != nil:
			return nil, err
		}
	}
}

func takeRoom(room Room, size int64) error {
	if err := room.Take(size); err != nil {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return nil
}

// decode decodes the body of an answer. Its HTTP status means nothing beside an envelope.
func decode(status int, body []byte, id string) (*envelope.Response, error) {
	response, err := envelope.DecodeResponse(body)
	switch {
	case err != nil:
		return nil, &CallError{
			Kind: NoEnvelope, Reason: fmt.Sprintf("the answer with HTTP status %d has no Forrst envelope", status), Status: status,
			// A gateway in between has stopped waiting; the service may not have.
			MayRun: status == http.StatusGatewayTimeout, cause: err,
		}
	case response.ID == nil && len(response.Errors) > 0: // It did not get as far as the id.
	case response.ID == nil || *response.ID != id:
		return nil, &CallError{Kind: WrongID, Reason: "the answer is to another call", Status: status}
	}
	return response, nil
}

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
	Status int // the HTTP status of the answer, or zero
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
