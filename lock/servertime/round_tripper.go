package servertime

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"forrst.dev/lock-operator/lock/refusal"
)

// RoundTripper makes the clock observe the answers that next gets from API servers. What is answered in place of them, see
// [refusal.RoundTripper], is an error. It is a wrapper for [k8s.io/client-go/rest.Config.Wrap]:
//
//	config.Wrap(clock.RoundTripper)
func (c *Clock) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{clock: c, next: refusal.RoundTripper(next)}
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
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil && isFromServer(response) {
		r.clock.Observe(sent, r.clock.Local().Now(), date)
	}
	return response, nil
}

// isFromServer reports whether the date of the response is the API server's. A proxy on the way may send clients elsewhere, or
// ask for patience.
func isFromServer(response *http.Response) bool {
	isElsewhere := response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest
	return !isElsewhere && response.StatusCode != http.StatusTooManyRequests
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }
