package forrst_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestAPriorityAboveZeroNeedsARight(t *testing.T) {
	for name, test := range map[string]struct {
		priority   string
		mayFirst   bool
		wantStatus int
		asked      []string
	}{
		"above 0 without the right": {"1", false, http.StatusForbidden, []string{"create default", "prioritize default", "prioritize default/k"}},
		"above 0 with the right":    {"1", true, http.StatusOK, []string{"create default", "prioritize default"}},
		"of 0":                      {"0", false, http.StatusOK, []string{"create default"}},
		"below 0":                   {"-1", false, http.StatusOK, []string{"create default"}},
	} {
		t.Run(name, func(t *testing.T) {
			known := &fakeAccess{
				who: func(*http.Request) (user.Info, error) { return &user.DefaultInfo{Name: "alice"}, nil },
				judge: func(_ user.Info, right authorizationv1.ResourceAttributes) error {
					if right.Verb == "create" || test.mayFirst {
						return nil
					}
					return lock.ErrForbidden
				},
			}
			f := newFixtureWith(t, func(config *testfacade.Settings) { config.Access = known })
			body := envelopeWith(wire.Acquire, arguments(`"key":"k","priority":`+test.priority), "")
			got := f.serve(httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path+"/default", strings.NewReader(body)))
			if got.status != test.wantStatus {
				t.Errorf("got %d: %s", got.status, got.body)
			}
			if isTried := len(f.locks.Calls()) > 0; isTried != (test.wantStatus == http.StatusOK) {
				t.Errorf("tried: %v", isTried)
			}
			if diff := cmp.Diff(test.asked, known.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}
