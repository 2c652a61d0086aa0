package contender

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The client reads just enough HTTP to be quick, so the test uses a real server.
func TestFacadeConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/forrst" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s with %q: %v", r.URL, body, err)
		}
		_, _ = w.Write(body) // an echo
	}))
	defer server.Close()
	connection, err := DialFacade(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	for _, body := range []string{`{"acquired":true}`, `{"released":true}`} {
		if err := connection.Call(t.Context(), connection.Request([]byte(body)), []byte(body)); err != nil {
			t.Errorf("call with %s: %v", body, err)
		}
	}
	if err := connection.Call(t.Context(), connection.Request([]byte(`{}`)), []byte("acquired")); err == nil {
		t.Error("an answer that is not the expected one is no error")
	}
	if err := connection.Call(t.Context(), connection.Request([]byte(`{"a":1}`)), []byte("a"), []byte("b")); err == nil {
		t.Error("an answer that lacks one of the texts is no error")
	}
}
