package servertime

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// RoundTripper makes the clock observe the responses that next gets from API servers. An error that a proxy on the way
// answers by itself has the time of the proxy, which may be any. It is a wrapper for [k8s.io/client-go/rest.Config.Wrap]:
//
//	config.Wrap(clock.RoundTripper)
func (c *Clock) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{clock: c, next: next}
}

type roundTripper struct {
	clock *Clock
	next  http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// RoundTrip implements [http.RoundTripper].
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := r.clock.Local().Now()
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if isFromServer(response) {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			r.clock.Observe(sent, r.clock.Local().Now(), date)
		}
	}
	return response, nil
}

// auditID is the header by which an API server names each request that it gets, also one that it refuses.
const auditID = "Audit-Id"

// isFromServer reports whether the date of the response is the server's, of just now. That of a cached response is the date
// of its storage. A proxy may remove the header from what it passes on, but has no locks to tell of by itself.
func isFromServer(response *http.Response) bool {
	return response.Header.Get("Age") == "" && (response.StatusCode < http.StatusBadRequest || response.Header.Get(auditID) != "")
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }
