package doctor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// listing is a façade that answers a list with an error.
type listing struct {
	lock.Backend
	err error
}

func (l listing) List(context.Context, string, lock.Filter) ([]v1alpha1.Lock, error) {
	return nil, l.err
}

func TestJudgesAFacade(t *testing.T) {
	type facade struct {
		ready, saturated int
		// expires is how long the certificate of the server is valid for, by its clock.
		expires time.Duration
		// ahead is how far the clock of the client is ahead of that of the server.
		ahead   time.Duration
		isAway  bool
		isAlien bool // The client does not trust its certificate.
		listed  error
	}
	for name, test := range map[string]struct {
		breaks func(*facade)
		status Status
		want   string
	}{
		"nothing":                          {func(*facade) {}, OK, "is ready"},
		"a façade that is away":            {func(f *facade) { f.isAway = true }, Fail, "does not answer"},
		"a certificate that is unknown":    {func(f *facade) { f.isAlien = true }, Fail, "--certificate-authority"},
		"another server":                   {func(f *facade) { f.ready = 404 }, Fail, "no façade"},
		"a façade that stops":              {func(f *facade) { f.ready = 503 }, Fail, "not ready"},
		"a façade at its limits":           {func(f *facade) { f.saturated = 503 }, Warn, "all callers: waiting"},
		"a certificate that has expired":   {func(f *facade) { f.expires = -time.Hour }, Fail, "has expired"},
		"a certificate about to expire":    {func(f *facade) { f.expires = time.Hour }, Warn, "expires on"},
		"a caller who is not known":        {func(f *facade) { f.listed = lock.ErrUnauthenticated }, Fail, "does not know you"},
		"a caller without rights":          {func(f *facade) { f.listed = lock.ErrForbidden }, Warn, "lock-operator-view"},
		"a clock that is wrong by minutes": {func(f *facade) { f.ahead = 5 * time.Minute }, Warn, "5m0s ahead"},
		"a list that is not answered":      {func(f *facade) { f.listed = lock.ErrUnavailable }, Fail, "is not answered"},
	} {
		t.Run(name, func(t *testing.T) {
			has := facade{ready: 200, saturated: 200, expires: 60 * 24 * time.Hour}
			test.breaks(&has)
			var at time.Time // By the clock of the server.
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", at.UTC().Format(http.TimeFormat))
				status := has.ready
				if r.URL.Path == "/readyz/saturation" {
					status = has.saturated
				}
				w.WriteHeader(status)
				_, _ = w.Write([]byte("waiting\n"))
			}))
			t.Cleanup(server.Close)
			at = server.Certificate().NotAfter.Add(-has.expires)
			flags := []string{"--server", server.URL}
			if !has.isAlien {
				flags = append(flags, "--insecure-skip-tls-verify")
			}
			if has.isAway {
				server.Close()
			}
			s := sessionOf(t, session.Options{Locks: listing{err: has.listed}, Clock: clocktesting.NewFakeClock(at.Add(has.ahead))}, flags...)
			report, err := Examine(t.Context(), s, "")
			if err != nil {
				t.Fatal(err)
			}
			says(t, report, test.status, test.want)
		})
	}
}
