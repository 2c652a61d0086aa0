package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

func routing(t *testing.T, urls ...string) *forrst.Routing {
	t.Helper()
	file := "routes:\n"
	for i, url := range urls {
		file += fmt.Sprintf("- functions: [f%d]\n  url: %s\n", i, url)
	}
	table, err := routes.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	client := forward.NewClient(nil)
	t.Cleanup(client.Close)
	return &forrst.Routing{Routes: table, Client: client}
}

func TestServicesAreComponents(t *testing.T) {
	var got []string
	for _, component := range routing(t, "http://a.b.svc:80/x", "http://a.b.svc:80/x", "http://a.c.svc/x", "http://a.c.svc/y", "http://d:8080").Components() {
		got = append(got, component.Name)
	}
	want := []string{"a_api", "a.c.svc_api", "http://a.c.svc/y", "d_api"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = nil
	for _, component := range routing(t, "http://10.0.0.1:8080", "http://10.0.0.2", "http://10.0.0.1:8081", "http://[::1]:8080", "http://[fd00::1]").Components() {
		got = append(got, component.Name)
	}
	want = []string{"10.0.0.1_api", "10.0.0.2_api", "10.0.0.1:8081_api", "::1_api", "fd00::1_api"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestHealthOfServices(t *testing.T) {
	answers := func(text string) string {
		return newService(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }).URL
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	const envelopeWith = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"health",`
	check := func(url string) error {
		return routing(t, url).Components()[0].Check(context.WithoutCancel(t.Context()))
	}
	if err := check(answers(envelopeWith + `"result":{}}`)); err != nil {
		t.Errorf("a service that answers: %v", err)
	}
	if err := check(answers(envelopeWith + `"errors":[{"code":"FUNCTION_NOT_FOUND","message":"m"}]}`)); err != nil {
		t.Errorf("a service without a ping: %v", err)
	}
	if err := check(answers("hello")); !errors.Is(err, forrst.ErrDegraded) {
		t.Errorf("another service: %v", err)
	}
	if err := check(closed.URL); err == nil || errors.Is(err, forrst.ErrDegraded) {
		t.Errorf("no service: %v", err)
	}
}
