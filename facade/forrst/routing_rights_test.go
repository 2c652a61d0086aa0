package forrst_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// newDemanding makes a façade that routes functions "r.…" by a route with the members, and whose callers
// are called caller and have the rights that judge does not refuse. No caller means no identities.
func newDemanding(t *testing.T, members, caller string, judge func(authorizationv1.ResourceAttributes) error) (*fixture, *service, *fakeAccess) {
	t.Helper()
	s := newService(t, says(`"result":1`))
	table, err := routes.Parse(fmt.Appendf(nil, "routes:\n- functions: ['r.*']\n  url: %s\n%s", s.URL, members))
	if err != nil {
		t.Fatal(err)
	}
	client := forward.NewClient(nil)
	t.Cleanup(client.Close)
	known := &fakeAccess{who: func(*http.Request) (user.Info, error) { return &user.DefaultInfo{Name: caller}, nil }}
	if judge != nil {
		known.judge = func(_ user.Info, right authorizationv1.ResourceAttributes) error { return judge(right) }
	}
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Routing = &forrst.Routing{Routes: table, Client: client}
		if caller != "" {
			config.Access = known
		}
	})
	return f, s, known
}

const worker = "system:serviceaccount:default:worker"

func TestRoutedFunctionsNeedARightOfTheirOwn(t *testing.T) {
	allowed := map[string]bool{}
	f, s, known := newDemanding(t, "", worker, func(right authorizationv1.ResourceAttributes) error {
		asked := right.Verb + " " + right.Resource + "." + right.Group
		if right.Name != "" {
			asked += "/" + right.Name
		}
		if allowed[asked] {
			return nil
		}
		return fmt.Errorf("%w: %s", lock.ErrForbidden, asked)
	})
	inLock := locked(`{"key":"k",` + ttl + `}`)
	refused := func(function, extension, verb, resource string) {
		t.Helper()
		got := f.post(envelopeWith(function, "", extension))
		f.wantProblems(got, 403, "FORBIDDEN")
		if want := fmt.Sprintf(`"details":{"verb":%q,"resource":%q,"namespace":"default"}`, verb, resource); !strings.Contains(got.body, want) {
			t.Errorf("%s: got %s, want %s", function, got.body, want)
		}
	}
	served := func(function, extension string) {
		t.Helper()
		s.body = ""
		if got := f.post(envelopeWith(function, "", extension)); got.status != 200 || s.body == "" {
			t.Errorf("%s: got %s", function, got.body)
		}
	}

	refused("r.f", "", "call", "functions.forrst.dev")
	if want := []string{"call default", "call default/r.f"}; cmp.Diff(want, known.asked) != "" {
		t.Errorf("asked %q", known.asked)
	}
	allowed["create locks.forrst.dev"] = true
	refused("r.f", inLock, "call", "functions.forrst.dev")

	delete(allowed, "create locks.forrst.dev")
	allowed["call functions.forrst.dev/r.f"] = true
	served("r.f", "")
	refused("r.f", inLock, "create", "locks.forrst.dev")
	for _, other := range []string{"r.g", "r.ff", "R.f", "r.f.", "r." + strings.Repeat("f", 2000)} {
		if other == "R.f" { // Has no route.
			f.wantProblems(f.post(envelopeWith(other, "", "")), 404, "FUNCTION_NOT_FOUND /call/function")
			continue
		}
		refused(other, "", "call", "functions.forrst.dev")
	}

	allowed["call functions.forrst.dev"], allowed["create locks.forrst.dev"] = true, true
	served("r.g", "")
	served("r.f", inLock)
	known.asked = nil
	if got := f.post(envelopeWith(ping, "", "")); got.status != 200 || len(known.asked) > 0 {
		t.Errorf("what is served here took %q: %s", known.asked, got.body)
	}
}

func TestServicesLearnWhoCalls(t *testing.T) {
	const key = `k % é`
	for name, test := range map[string]struct {
		caller, extension string
		want              http.Header
	}{
		"inside a lock": {worker, locked(`{"key":"` + key + `","scope":"global",` + ttl + `}`), http.Header{
			"Forrst-Caller": {worker}, "Forrst-Namespace": {namespace}, "Forrst-Full-Key": {"lock:k%20%25%20%C3%A9"},
		}},
		"without a lock":         {worker, "", http.Header{"Forrst-Caller": {worker}, "Forrst-Namespace": {namespace}}},
		"a name to be encoded":   {"Zoë\r\nX: y", "", http.Header{"Forrst-Caller": {"Zo%C3%AB%0D%0AX:%20y"}}},
		"callers without a name": {"", "", http.Header{"Forrst-Caller": {"system:anonymous"}, "Forrst-Namespace": {namespace}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, _ := newDemanding(t, "", test.caller, nil)
			forged := `{"urn":"urn:k8s:forrst:ext:fencing","options":{"token":9}},{"urn":"urn:k8s:forrst:ext:lock-lost"}`
			if test.extension != "" {
				forged += "," + test.extension
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("r.f", "", forged)))
			for _, header := range []string{"Forrst-Caller", "forrst-caller", "FORRST-CALLER", "Forrst-Full-Key", "forrst-full-key", "Forrst-Fencing-Token", "Forrst_Caller"} {
				request.Header[header] = []string{"forged", "forged too"}
			}
			got := f.serve(request)
			if got.status != 200 {
				t.Fatal(got.body)
			}
			if test.extension != "" {
				test.want["Forrst-Fencing-Token"] = []string{fmt.Sprint(got.fencing)}
			}
			learnt := http.Header{}
			for name, values := range s.header {
				if strings.HasPrefix(strings.ToLower(name), "forrst") {
					learnt[name] = values
				}
			}
			if diff := cmp.Diff(test.want, learnt); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if strings.Contains(s.body, "fencing") || strings.Contains(s.body, "lock-lost") {
				t.Errorf("the service got %s", s.body)
			}
		})
	}
}

func TestRoutesMayDemandALockAKeyAndANamespace(t *testing.T) {
	const demands = "  lock: required\n  fullKeys: ['lock:order:*', 'lock:r.f:single']\n"
	inLock := func(options string) string { return locked(`{` + options + `,` + ttl + `}`) }
	const dryRun = `,{"urn":"urn:forrst:ext:dry-run","options":{"enabled":true}}`
	for name, test := range map[string]struct {
		demands, extension string
		problem            string
		locks              int
	}{
		"the lock":                         {demands, inLock(`"key":"order:7","scope":"global"`), "", 1},
		"the lock of the function":         {demands, inLock(`"key":"single"`), "", 1},
		"a lock that the caller keeps":     {demands, inLock(`"key":"single","auto_release":false`), "", 1},
		"no lock":                          {demands, "", "INVALID_REQUEST", 0},
		"another lock":                     {demands, inLock(`"key":"orders:7","scope":"global"`), "INVALID_ARGUMENTS /extensions/0/options/key", 0},
		"the key for the function alone":   {demands, inLock(`"key":"order:7"`), "INVALID_ARGUMENTS /extensions/0/options/key", 0},
		"a key that one begins with":       {demands, inLock(`"key":"single2"`), "INVALID_ARGUMENTS /extensions/0/options/key", 0},
		"no key":                           {demands, inLock(`"scope":"global"`), "INVALID_ARGUMENTS /extensions/0/options/key", 0},
		"a dry run, which takes the lock":  {demands, inLock(`"key":"single"`) + dryRun, "", 1},
		"a dry run without a lock":         {demands, dryRun[1:], "INVALID_REQUEST", 0},
		"any lock":                         {"  lock: required\n", inLock(`"key":"x"`), "", 1},
		"the namespace":                    {"  namespaces: [other, default]\n", "", "", 0},
		"another namespace":                {"  namespaces: [other]\n", "", "FORBIDDEN", 0},
		"another namespace, with the lock": {demands + "  namespaces: [other]\n", inLock(`"key":"single"`), "FORBIDDEN", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, _ := newDemanding(t, test.demands, worker, nil)
			got := f.post(envelopeWith("r.f", "", test.extension))
			if isServed := s.body != ""; isServed != (test.problem == "") {
				t.Errorf("served: %t, %s", isServed, got.body)
			}
			if test.problem != "" {
				status := 400
				if test.problem == "FORBIDDEN" {
					status = 403
				}
				f.wantProblems(got, status, test.problem)
			} else if got.status != 200 {
				t.Error(got.body)
			}
			if taken := len(f.requests()); taken != test.locks {
				t.Errorf("%d locks were taken, want %d", taken, test.locks)
			}
		})
	}
}
