package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// maxIdleConnections is how many connections to the façade are kept for the next calls.
// The default of net/http, two, would have most calls of a busy program begin with
// a handshake.
const maxIdleConnections = 1024

// Client is a [lock.Backend] on a façade. It is safe for concurrent use, and keeps connections open for
// later calls. It has goroutines of its own only for [Client.Watch] and, for at most its timeout, to
// release what a caller whose context has ended may have got.
//
// The namespace argument of every method may be empty for that of [WithNamespace] or, by
// default, the caller's own. A façade that does not authenticate its callers serves one namespace and
// refuses any other with an error that matches [lock.ErrInvalid]; otherwise errors match
// [lock.ErrUnauthenticated] or [lock.ErrForbidden] where the caller is not known or lacks a
// right. The holder of a lock is whom the façade takes the
// caller for, whatever a request says.
//
// The locks that are returned have a name and a spec with everything stamped, and no
// other metadata.
type Client struct {
	// base is the URL of the façade, and url that of its Forrst door.
	base, url string
	http      *http.Client
	options   options
	// idPrefix and calls name the requests.
	idPrefix string
	calls    atomic.Uint64
	// maxBlock is the longest wait that the façade is asked for.
	maxBlock atomic.Int64
	// leaving are the releases that callers whose context has ended do not wait for.
	leaving sync.WaitGroup
	// ownNamespace is that of calls that name none, once the façade has told it.
	ownNamespace atomic.Pointer[string]
}

var _ lock.Backend = (*Client)(nil)

// New returns a client of the façade at baseURL, such as "http://127.0.0.1:8080". The
// façade is not asked anything yet. The error says what is wrong with the arguments.
func New(baseURL string, configure ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("facade client: %w", err)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("facade client: %q is no URL such as http://127.0.0.1:8080", base.Redacted())
	}
	c := &Client{
		base:     strings.TrimSuffix(base.String(), "/"),
		url:      base.JoinPath(wire.Path).String(),
		options:  options{timeout: DefaultTimeout, maxBlock: DefaultMaxBlock, clock: clock.RealClock{}},
		idPrefix: lock.NewOwner()[:8] + "-",
	}
	for _, option := range configure {
		option(&c.options)
	}
	if c.options.timeout <= 0 || c.options.maxBlock < time.Millisecond {
		return nil, fmt.Errorf("facade client: the timeout must be more than zero and the longest wait at least %s", time.Millisecond)
	}
	c.maxBlock.Store(int64(c.options.maxBlock))
	c.http = newHTTPClient(c.options.http)
	return c, nil
}

// newHTTPClient returns a client that does not follow redirects: they would take the
// owner token, and the bearer token with it, to somewhere else.
func newHTTPClient(given *http.Client) *http.Client {
	client := new(http.Client)
	if given != nil {
		*client = *given
	} else {
		client.Transport = newTransport()
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client
}

func newTransport() http.RoundTripper {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		// A program has put something of its own there, which is meant to be used.
		return http.DefaultTransport
	}
	transport = transport.Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, maxIdleConnections
	// Answers are small, and every connection has buffers of both kinds.
	transport.DisableCompression = true
	return transport
}

// Close closes the connections that no call is using, after its own goroutines have ended. No call may be
// under way. The client may be used again.
func (c *Client) Close() {
	c.leaving.Wait()
	if c.options.http == nil {
		c.http.CloseIdleConnections()
	}
}
