package servertime

import (
	"net/http"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// RoundTripper makes the clock observe the responses that next gets from API servers. An error that a proxy on the way
// answers by itself is ignored: it has the time of the proxy, which may be any. A success of a proxy counts as long as the API
// server names no responses. It is a wrapper for [k8s.io/client-go/rest.Config.Wrap]:
//
//	config.Wrap(clock.RoundTripper)
func (c *Clock) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{clock: c, next: next}
}

type roundTripper struct {
	clock *Clock
	next  http.RoundTripper
	// unnamed is how many more successes without an auditID are taken for those of a proxy. It is zero until a response
	// has had one, and as soon as a proxy seems to remove it.
	unnamed atomic.Int64
}

// maxUnnamed is how many successes in a row have no auditID until a proxy on the way counts as one that removes it.
const maxUnnamed = 100

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// RoundTrip implements [http.RoundTripper].
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := r.clock.Local().Now()
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if r.isFromServer(response) {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			r.clock.Observe(sent, r.clock.Local().Now(), date)
		}
	}
	return response, nil
}

// auditID is the header by which an API server names each request that it gets, also one that it refuses.
const auditID = "Audit-Id"

// isFromServer reports whether the date of the response is the server's, of just now. That of a cached response is the date
// of its storage. Where a proxy removes the auditID from what it passes on, successes count without it.
func (r *roundTripper) isFromServer(response *http.Response) bool {
	switch {
	case response.Header.Get("Age") != "":
		return false
	case response.Header.Get(auditID) != "":
		r.unnamed.Store(maxUnnamed)
		return true
	case response.StatusCode >= http.StatusMultipleChoices:
		return false
	}
	return r.unnamed.Load() <= 0 || r.unnamed.Add(-1) < 0
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }
