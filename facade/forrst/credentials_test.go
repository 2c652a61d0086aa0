package forrst_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"forrst.dev/lock-operator/facade/forrst"
)

func TestCredentialsAreNotPassedOn(t *testing.T) {
	f, s := newRouted(t, says(`"result":1`))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("r.f", "", locked(`{"key":"k","owner":"secret","scope":"global",`+ttl+`}`))))
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Forwarded-Access-Token", "X-Remote-User"} {
		request.Header.Set(name, "secret")
	}
	if got := f.serve(request); got.status != 200 {
		t.Fatal(got.body)
	}
	for name, values := range s.header {
		if strings.Contains(strings.Join(values, " "), "secret") {
			t.Errorf("the service got %s: %q", name, values)
		}
	}
	if len(s.header) == 0 || strings.Contains(s.body, "secret") {
		t.Errorf("the service got %s", s.body)
	}
}
