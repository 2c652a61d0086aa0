package tracing

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRequestsAreNamedByWhatTheyAskFor(t *testing.T) {
	const locks = "/apis/forrst.dev/v1alpha1/namespaces/payments/locks"
	for request, want := range map[[2]string]string{
		{http.MethodPost, locks}:                                                "create locks",
		{http.MethodPut, locks + "/billing--report"}:                            "update locks",
		{http.MethodDelete, locks + "/billing--report"}:                         "delete locks",
		{http.MethodDelete, locks}:                                              "deletecollection locks",
		{http.MethodGet, locks + "/billing--report"}:                            "get locks",
		{http.MethodGet, locks}:                                                 "list locks",
		{http.MethodGet, "/apis/forrst.dev/v1alpha1/locks?limit=1&watch=true"}:  "watch locks",
		{http.MethodPatch, "/apis/batch/v1/namespaces/payments/jobs/j/status"}:  "patch jobs/status",
		{http.MethodGet, "/api/v1/namespaces/payments"}:                         "get namespaces",
		{http.MethodGet, "/api/v1/namespaces/payments/pods/p"}:                  "get pods",
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"}: "create subjectaccessreviews",
		{http.MethodGet, "/readyz/ping"}:                                        "get /readyz",
		{http.MethodGet, "/"}:                                                   "get /",
		{http.MethodGet, "/apis/forrst.dev/v1alpha1"}:                           "get /apis",
	} {
		verb, resource := requested(httptest.NewRequestWithContext(t.Context(), request[0], request[1], http.NoBody))
		if got := verb + " " + resource; got != want {
			t.Errorf("%v is %q, want %q", request, got, want)
		}
	}
}
