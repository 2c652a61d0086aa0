package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"forrst.dev/lock-operator/facade/server"
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
