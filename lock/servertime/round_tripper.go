package servertime

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// RoundTripper makes the clock observe the responses that next gets, all of which must come from
// API servers. It is a wrapper for [k8s.io/client-go/rest.Config.Wrap]:
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
	// The date of a cached response is that of its storage.
	if response.Header.Get("Age") == "" {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			r.clock.Observe(sent, r.clock.Local().Now(), date)
		}
	}
	return response, nil
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }
