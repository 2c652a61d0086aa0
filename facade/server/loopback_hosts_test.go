package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestOnlyLoopbackHostsAreServedToCallersWithoutIdentity(t *testing.T) {
	hosts := map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST": true, "localhost.:8080": true, "locks.localhost:8080": false,
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.8.9.1": true, "[::1]:8080": true, "[::1]": true,
		"": false, "attacker.example": false, "attacker.example:8080": false, "localhost.attacker.example": false, "notlocalhost": false,
		"192.0.2.1:8080": false, "0.0.0.0:8080": false, "[2001:db8::1]:8080": false, "127.0.0.1.attacker.example": false,
	}
	for _, isOnly := range []bool{true, false} {
		served, err := server.New(server.Options{LoopbackHostsOnly: isOnly})
		if err != nil {
			t.Fatal(err)
		}
		served.Mount(everything{})
		for host, isServed := range hosts {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/key", http.NoBody)
			request.Host = host
			want := http.StatusOK
			if isOnly && !isServed {
				want = http.StatusMisdirectedRequest
			}
			recorder := httptest.NewRecorder()
			served.ServeHTTP(recorder, request)
			if recorder.Code != want {
				t.Errorf("only loopback %t, host %q: %d, want %d", isOnly, host, recorder.Code, want)
			}
		}
	}
}

// A page of another site that has given its own name the address of this machine reaches no door, and none
// of what the server itself answers.
func TestNothingIsServedUnderAReboundName(t *testing.T) {
	served, err := testfacade.New(testfacade.Settings{Locks: locktest.New(), Namespace: "default", Server: server.Options{LoopbackHostsOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{
		"POST /forrst", "POST /forrst/default", "POST //forrst",
		"GET /v1/namespaces/default/locks", "GET /v1/namespaces/default/locks?watch=true", "GET /v1/namespaces/default/locks/k", "POST /v1/namespaces/default/locks/k",
		"PUT /v1/namespaces/default/locks/k", "DELETE /v1/namespaces/default/locks/k", "OPTIONS /v1/namespaces/default/locks/k",
		"GET /v1/", "GET /openapi.json", "GET /docs", "GET /healthz", "GET /readyz", "GET /readyz/saturation", "GET /metrics", "GET /",
	} {
		method, path, _ := strings.Cut(call, " ")
		gone, leave := context.WithCancel(t.Context())
		leave() // A stream that is served ends at once.
		request := httptest.NewRequestWithContext(gone, method, path, http.NoBody)
		request.Host = "attacker.example:8080"
		// As a browser sends it: to the page, it is its own origin.
		request.Header.Set("Origin", "http://attacker.example:8080")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		recorder := httptest.NewRecorder()
		served.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusMisdirectedRequest {
			t.Errorf("%s: status %d", call, recorder.Code)
		}
	}
}
