package apianswers_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock/apianswers"
)

const (
	lockPath = "/apis/forrst.dev/v1alpha1/namespaces/default/locks/k"
	status   = `{"kind":"Status","apiVersion":"v1","status":"Failure"}`
)

func TestWhatIsNoStatusOfTheAPIServerIsNoAnswer(t *testing.T) {
	for title, test := range map[string]struct {
		code       int
		path, body string
		isAnswer   bool
	}{
		"a refusal by the API server":               {code: http.StatusConflict, body: status, isAnswer: true},
		"a refusal in Protobuf":                     {code: http.StatusNotFound, body: "k8s\x00\n\x0c\n\x02v1\x12\x06Status", isAnswer: true},
		"a refusal for want of room":                {code: http.StatusTooManyRequests, body: "Too many requests", isAnswer: true},
		"a lock":                                    {code: http.StatusOK, body: `{"kind":"Lock"}`, isAnswer: true},
		"a kind that is not served":                 {code: http.StatusNotFound, body: "404 page not found\n"},
		"a refusal for want of time":                {code: http.StatusGatewayTimeout, body: `{"metadata":{},"status":"Failure","code":504}`, isAnswer: true},
		"a proxy to log in to":                      {code: http.StatusUnauthorized, body: "<html>", isAnswer: true},
		"a group of a server that has its own path": {code: http.StatusNotFound, path: "/api/clusters/c/apis/forrst.dev/v1", body: "404 page not found\n", isAnswer: true},
		"a façade with a key like a path":           {code: http.StatusNotFound, path: "/v1/namespaces/n/locks/team%2Fapi%2Fv1%2Fprod", body: "{}", isAnswer: true},
		"a proxy that has given up":                 {code: http.StatusRequestTimeout},
		"a proxy that finds nothing behind it":      {code: http.StatusBadGateway, body: "<html><title>Bad Gateway</title></html>"},
		"a proxy that refuses in JSON":              {code: http.StatusForbidden, body: `{"message":"no","kind":"Error"}`},
		"a proxy that refuses a Pod":                {code: http.StatusNotFound, path: "/api/v1/namespaces/default/pods/p", body: "default backend - 404"},
		"a proxy that refuses all locks":            {code: http.StatusNotFound, path: "/apis/forrst.dev/v1alpha1/locks", body: "default backend - 404"},
		"a proxy that refuses below its own path":   {code: http.StatusNotFound, path: "/clusters/c" + lockPath, body: "default backend - 404"},
		"a version that is not served":              {code: http.StatusNotFound, path: "/apis/forrst.dev/v1alpha1", body: "404 page not found\n", isAnswer: true},
		"a version that is not served, of core":     {code: http.StatusNotFound, path: "/api/v1", body: "404 page not found\n", isAnswer: true},
		"a probe that fails":                        {code: http.StatusInternalServerError, path: "/readyz", body: "[-]etcd failed", isAnswer: true},
	} {
		t.Run(title, func(t *testing.T) {
			path := test.path
			if path == "" {
				path = lockPath
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.EscapedPath() != path {
					t.Errorf("asked for %s", r.URL.EscapedPath())
				}
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := apianswers.RoundTripper(http.DefaultTransport).RoundTrip(request)
			if (err == nil) != test.isAnswer {
				t.Fatalf("got the error %v", err)
			}
			if err != nil {
				if isNotServed := errors.Is(err, apianswers.ErrNotServed); isNotServed != (test.code == http.StatusNotFound) || !strings.Contains(err.Error(), http.StatusText(test.code)) || strings.Contains(err.Error(), "backend") {
					t.Errorf("the error is %v", err)
				}
				return
			}
			defer response.Body.Close()
			if body, err := io.ReadAll(response.Body); err != nil || string(body) != test.body || response.StatusCode != test.code {
				t.Errorf("got %d, %q, %v", response.StatusCode, body, err)
			}
		})
	}
}

func TestClientGoFindsTheTransportBelow(t *testing.T) {
	config := &rest.Config{Host: "https://example.com"}
	config.Wrap(apianswers.RoundTripper)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := utilnet.TLSClientConfig(client.Transport); err != nil {
		t.Error(err)
	}
}
