package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// maxAnswerBytes bounds an answer; a list of some hundred thousand locks fits.
const maxAnswerBytes = 64 << 20

// unansweredError means that a call may have been carried out, or be carried out yet. It
// does not unwrap its cause, which may be the end of a context that is not the caller's.
type unansweredError struct{ cause error }

// Error implements error.
func (e *unansweredError) Error() string { return "no answer from the façade: " + e.cause.Error() }

// Is makes an unansweredError match [lock.ErrUnavailable].
func (e *unansweredError) Is(target error) bool { return target == lock.ErrUnavailable }

// exchange calls a function of the façade once. It returns an [*unansweredError], or
// the [forrst.Errors] of the answer; any other error means that nothing was carried out.
func (c *Client) exchange(ctx context.Context, namespace, function string, arguments any, timeout time.Duration) (*envelope.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id := c.idPrefix + strconv.FormatUint(c.calls.Add(1), 36)
	request, err := c.newRequest(ctx, namespace, id, function, arguments)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if isUnsent(err) {
			return nil, fmt.Errorf("%w: %w; %w", lock.ErrUnavailable, err, lock.ErrNothingDone)
		}
		return nil, &unansweredError{err}
	}
	defer response.Body.Close()
	c.learnNamespace(namespace, response.Header)
	answer, err := read(response)
	switch {
	case err != nil:
		return nil, err
	case answer.ID == nil && len(answer.Errors) > 0: // It did not get as far as the id.
	case answer.ID == nil || *answer.ID != id:
		return nil, &unansweredError{errors.New("the answer is to another request")}
	}
	if len(answer.Errors) > 0 {
		return nil, answer.Errors
	}
	return answer, nil
}

func (c *Client) newRequest(ctx context.Context, namespace, id, function string, arguments any) (*http.Request, error) {
	namespace = cmp.Or(namespace, c.options.namespace)
	if strings.ContainsFunc(namespace, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w: %q is not the name of a namespace", lock.ErrInvalid, namespace)
	}
	encoded, err := envelope.Encode(arguments)
	if err != nil {
		return nil, err
	}
	body, err := envelope.Encode(envelope.Request{
		Protocol: envelope.Spoken,
		ID:       id,
		Call:     envelope.Call{Function: function, Version: wire.FunctionVersion, Arguments: encoded},
	})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if namespace != "" {
		request.Header.Set(wire.NamespaceHeader, namespace)
	}
	return request, c.authenticate(request)
}

// authenticate adds the bearer token, if the client has one.
func (c *Client) authenticate(request *http.Request) error {
	if c.options.token == nil {
		return nil
	}
	token, err := c.options.token(request.Context())
	if err != nil {
		return fmt.Errorf("%w: get a bearer token: %w; %w", lock.ErrUnavailable, err, lock.ErrNothingDone)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// learnNamespace notes the namespace of a call that named none.
func (c *Client) learnNamespace(named string, answer http.Header) {
	if own := answer.Get(wire.NamespaceHeader); own != "" && cmp.Or(named, c.options.namespace) == "" && c.ownNamespace.Load() == nil {
		c.ownNamespace.Store(&own)
	}
}

// read reads an answer to its end, so that the connection can be used again.
func read(response *http.Response) (*envelope.Response, error) {
	var body bytes.Buffer
	if size := response.ContentLength; 0 < size && size <= maxAnswerBytes {
		body.Grow(int(size) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(response.Body, maxAnswerBytes+1)); err != nil {
		return nil, &unansweredError{err}
	}
	if body.Len() > maxAnswerBytes {
		return nil, &unansweredError{fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes)}
	}
	answer, err := envelope.DecodeResponse(body.Bytes())
	if err == nil {
		return answer, nil
	}
	return nil, withoutEnvelope(response.StatusCode, err)
}

// withoutEnvelope judges an answer that is not the façade's, such as that of a proxy.
func withoutEnvelope(status int, err error) error {
	err = fmt.Errorf("HTTP status %d: %w", status, err)
	switch {
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", lock.ErrUnauthenticated, err)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: %w", lock.ErrForbidden, err)
	case status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w; %w", lock.ErrUnavailable, err, lock.ErrNothingDone)
	case status == http.StatusRequestTimeout, status < 300, status >= 500:
		return &unansweredError{err}
	}
	// A redirect, or a refusal before the façade.
	return err
}

// isUnsent reports whether there was no connection to send a request on.
func isUnsent(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}
