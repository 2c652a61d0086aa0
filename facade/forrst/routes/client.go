package routes

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// MaxAnswerBytes is the largest answer that is read (section 4.1).
const MaxAnswerBytes = 10 << 20

const (
	// connectTimeout is what the protocol advises (section 4.5).
	connectTimeout = 5 * time.Second
	// idleTimeout is shorter than that of common servers: a call that meets the end of an
	// idle connection fails, and nobody knows whether it was carried out.
	idleTimeout = 4 * time.Second
	// maxIdleConnections per host. The default of net/http, two, would have most calls of
	// a busy façade begin with a handshake.
	maxIdleConnections = 1024
)

// errTimeout is the cause that ends the context of a call after the timeout of its route.
var errTimeout = errors.New("the timeout of the route has passed")

// Call is a call to pass on.
type Call struct {
	// ID is that of the request in Body.
	ID string
	// Body is an encoded request. It must not be changed any more.
	Body []byte
	// Header is sent along. The call may change it.
	Header http.Header
}

// Client calls services. It keeps connections open for later calls, starts no goroutines
// of its own, and is safe for concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a client. A nil transport is one that suits services nearby: no
// proxies, no compression. Redirects are not followed whatever the transport is: they
// would take a call to where nobody has routed it.
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

// Do calls the service of a route and waits for its answer, which may report errors, or
// until the timeout of the route. The error is a [*CallError]; if ctx ends, its cause is
// that of ctx, and the call may be at work all the same.
//
// The answer is for this call, or for one that did not get as far as its id. It refers to
// memory that nothing else uses.
func (c *Client) Do(ctx context.Context, route Route, call Call) (*envelope.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, route.Timeout, errTimeout)
	defer cancel()
	isSent := false
	// The transport asks for a connection anew only if it has written nothing. The hooks run
	// in the goroutine of this call.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { isSent = false },
		GotConn: func(httptrace.GotConnInfo) { isSent = true },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, route.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, unreachable(err)
	}
	if call.Header != nil {
		request.Header = call.Header
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, failure(ctx, isSent, err)
	}
	defer response.Body.Close()
	body, err := read(response)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, &CallError{Kind: TooLarge, Reason: err.Error(), Status: response.StatusCode}
	case err != nil:
		return nil, failure(ctx, true, err)
	}
	return answer(response.StatusCode, body, call.ID)
}
