package robustness_test

import (
	"net/http"
	"time"
)

// apiServersDiffer is how much the clock of the second API server is ahead of that of the first: less
// than the allowance for clocks that differ.
const apiServersDiffer = 400 * time.Millisecond

// clockAhead makes the clock of an API server show a later time: a replica learns it from the dates of
// answers, which have whole seconds.
type clockAhead struct {
	next http.RoundTripper
	by   time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (c *clockAhead) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil && c.by > 0 {
		response.Header.Set("Date", time.Now().Add(c.by).UTC().Format(http.TimeFormat))
	}
	return response, err
}
