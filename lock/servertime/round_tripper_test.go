package servertime_test

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/servertime"
)

// server answers after a while with the time that its clock shows halfway.
type server struct {
	offset, roundTrip time.Duration
	header            http.Header
	status            int
	path              string
	body              string
	err               error
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.roundTrip / 2) //nolint:forbidigo // synctest: this moves the bubble's clock
	header := s.header.Clone()
	if header == nil {
		header = http.Header{"Date": {time.Now().Add(s.offset).UTC().Format(http.TimeFormat)}}
	}
	time.Sleep(s.roundTrip / 2) //nolint:forbidigo // synctest: this moves the bubble's clock
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: cmp.Or(s.status, http.StatusOK), Header: header, Body: io.NopCloser(strings.NewReader(s.body))}, nil
}

// path is that of a lock.
const path = "/apis/forrst.dev/v1alpha1/namespaces/default/locks/k"

func get(t *testing.T, transport http.RoundTripper) {
	t.Helper()
	response, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

func TestRoundTripper(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := servertime.New(clock.RealClock{})
			transport := c.RoundTripper(&server{offset: offset, roundTrip: 4 * time.Millisecond})
			get(t, transport)
			if !c.HasHeard(time.Minute) {
				t.Error("no response was heard")
			}
			if off := time.Until(c.Now()) - offset; off.Abs() > time.Second+4*time.Millisecond {
				t.Errorf("off by %s after one response", off)
			}
			for range 200 {
				get(t, transport)
				time.Sleep(1511 * time.Millisecond) //nolint:forbidigo // synctest: this moves the bubble's clock
			}
			if off := time.Until(c.Now()) - offset; off.Abs() > 20*time.Millisecond {
				t.Errorf("off by %s after many responses", off)
			}
		})
	}
}

// Refusals by the API server tell its time, too: a webhook reads a lock that need not exist.
func TestRoundTripperObservesRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servertime.New(clock.RealClock{})
		get(t, c.RoundTripper(apianswers.RoundTripper(&server{status: http.StatusNotFound, body: `{"kind":"Status"}`})))
		if !c.HasHeard(time.Minute) {
			t.Error("no refusal by the API server was heard")
		}
	})
}

func TestRoundTripperIgnores(t *testing.T) {
	date := []string{"Fri, 20 Nov 2026 12:00:00 GMT"}
	for name, server := range map[string]*server{
		"a response without a date":     {header: http.Header{}},
		"a date that is none":           {header: http.Header{"Date": {"noon"}}},
		"an error of a proxy":           {header: http.Header{"Date": date}, path: "/apis", status: http.StatusBadGateway},
		"a login page of a proxy":       {header: http.Header{"Date": date}, status: http.StatusFound},
		"the patience that it asks for": {header: http.Header{"Date": date}, status: http.StatusTooManyRequests},
		"a request without a response":  {err: errors.New("refused")},
	} {
		c := servertime.New(clock.RealClock{})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, cmp.Or(server.path, path), http.NoBody)
		response, err := c.RoundTripper(server).RoundTrip(request)
		if !errors.Is(err, server.err) {
			t.Errorf("%s: got the error %v", name, err)
		}
		if err == nil {
			response.Body.Close()
		}
		if c.HasHeard(time.Minute) {
			t.Errorf("%s was heard", name)
		}
	}
}

func TestRoundTripperOfAClient(t *testing.T) {
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer wrong.Close()
	c := servertime.New(clock.RealClock{})
	config := &rest.Config{Host: wrong.URL}
	config.Wrap(c.RoundTripper)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(wrong.URL) //nolint:noctx // it ends with the server
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if off := time.Until(c.Now()) + time.Hour; off.Abs() > 2*time.Second || !c.HasHeard(time.Minute) {
		t.Errorf("off by %s, heard: %t", off, c.HasHeard(time.Minute))
	}
	if _, err := utilnet.TLSClientConfig(client.Transport); err != nil {
		t.Errorf("client-go does not find the transport below: %v", err)
	}
}
