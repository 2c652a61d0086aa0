package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"forrst.dev/lock-operator/facade/server"
)

// everything is a door that answers each path.
type everything struct{}

func (everything) Register(mux *http.ServeMux) {
	mux.HandleFunc("/v1/{key}", func(http.ResponseWriter, *http.Request) {})
}

func TestOnlyCleanPathsAreServed(t *testing.T) {
	served, err := server.New(server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	served.Mount(everything{})
	for path, want := range map[string]int{
		"/v1/key": http.StatusOK, "/v1/a%2Fb": http.StatusOK, "/v1/a%2F%2Fb": http.StatusOK, "/v1/%2E": http.StatusOK, "/healthz": http.StatusOK,
		"//v1/a%2Fb": http.StatusNotFound, "/v1//a%2Fb": http.StatusNotFound, "/v1/./key": http.StatusNotFound,
		"/v1/../v1/key": http.StatusNotFound, "/": http.StatusNotFound, "/v1/key/": http.StatusNotFound,
	} {
		recorder := httptest.NewRecorder()
		served.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, http.NoBody))
		if path == "/healthz" {
			recorder = httptest.NewRecorder()
			served.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
		}
		if recorder.Code != want {
			t.Errorf("%s: %d, want %d, Location %q", path, recorder.Code, want, recorder.Header().Get("Location"))
		}
	}
}
