package servertime

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"forrst.dev/lock-operator/lock/apianswers"
)

// RoundTripper makes the clock observe the answers that next gets from API servers. Next has to be a [apianswers.RoundTripper]:
//
//	config.Wrap(apianswers.RoundTripper)
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
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil && isFromServer(request, response.StatusCode) {
		r.clock.Observe(sent, r.clock.Local().Now(), date)
	}
	return response, nil
}

// isFromServer reports whether the date of the answer is the API server's. A proxy on the way may send clients elsewhere, or
// answer by itself what is no request for objects.
func isFromServer(request *http.Request, code int) bool {
	return code < http.StatusMultipleChoices || apianswers.IsJudged(request, code)
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which
// client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }
