package rest_test

import (
	"net/http"
	"testing"

	"forrst.dev/lock-operator/test/support/testfacade"
)

// The name of its object is asked for of each request about one lock, by the key as it is locked.
func TestARoleMayNameSingleLocks(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Access = &callers{
			deny: []string{"alice create", "alice get", "alice list", "alice watch", "alice force-release"},
			allow: []string{
				"alice create billing--report", "alice get billing--report", "alice watch billing--report", "alice force-release billing--report",
				"alice create close--billing--report", "alice get close--billing--report",
			},
		}
	})
	const ofFunction = `{"ttl_seconds":60,"function":"close"}`
	token := f.acquire(report, ofSixty)
	f.do(http.MethodGet, report, "").want(http.StatusOK)
	f.do(http.MethodHead, report, "").want(http.StatusOK)
	f.do(http.MethodGet, report+"?watch=true", "").want(http.StatusOK)
	f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", token).want(http.StatusOK)
	f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusNoContent)
	f.acquire(report, ofSixty)
	f.do(http.MethodDelete, report+"?force=true&reason=r", "").want(http.StatusNoContent)
	token = f.acquire(report, ofFunction)
	f.do(http.MethodGet, report+"?function=close", "").want(http.StatusOK)
	f.do(http.MethodPut, report+"?function=close", ofSixty, "X-Lock-Token", token).want(http.StatusOK)
	f.do(http.MethodDelete, report+"?function=close", "", "X-Lock-Token", token).want(http.StatusNoContent)

	const other = "/v1/namespaces/payments/locks/billing:other"
	for _, refused := range []answer{
		f.do(http.MethodPost, other, ofSixty),
		f.do(http.MethodPost, other, ofFunction),
		f.do(http.MethodPost, report, `{"ttl_seconds":60,"function":"open"}`),
		f.do(http.MethodPost, report+"?function=close", `{"ttl_seconds":60,"function":"open"}`),
		f.do(http.MethodPost, other, `{`),
		f.do(http.MethodGet, other, ""),
		f.do(http.MethodGet, report+"?function=open", ""),
		f.do(http.MethodGet, other+"?watch=true", ""),
		f.do(http.MethodGet, report+"?function=close&watch=true", ""),
		f.do(http.MethodPut, other, ofSixty, "X-Lock-Token", token),
		f.do(http.MethodDelete, other, "", "X-Lock-Token", token),
		f.do(http.MethodDelete, other+"?force=true&reason=r", ""),
		f.do(http.MethodDelete, report+"?function=close&force=true&reason=r", ""),
		f.do(http.MethodGet, "/v1/namespaces/payments/locks", ""),
		f.do(http.MethodGet, "/v1/namespaces/payments/locks?watch=true", ""),
	} {
		refused.want(http.StatusForbidden, "forbidden")
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// A parameter that is not one of the operation is still refused.
	f.do(http.MethodPost, report+"?function=close", ofSixty).want(http.StatusBadRequest)
}
