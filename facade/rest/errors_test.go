package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// What package lock says, and what each method of a lock answers: one row for each error.
func TestAnswersToErrorsOfPackageLock(t *testing.T) {
	held := &lock.HeldError{Key: theReport, Holder: "bob", ExpireTime: time.Date(2026, 3, 15, 10, 30, 7, 1, time.UTC)}
	for name, test := range map[string]struct {
		err        error
		status     int
		problem    string
		retryAfter string
	}{
		"held":                  {held, 423, "lock-held", "8"},
		"held for all the wait": {fmt.Errorf("%w: %w", lock.ErrTimeout, held), 423, "lock-held", "8"},
		"held by an unknown":    {&lock.HeldError{Key: theReport}, 423, "lock-held", "1"},
		"expired just now":      {&lock.HeldError{Key: theReport, IsExpired: true}, 423, "lock-held", "1"},
		"held until past":       {&lock.HeldError{Key: theReport, Holder: "bob"}, 423, "lock-held", "1"},
		"held for long":         {&lock.HeldError{Key: theReport, Holder: "bob", ExpireTime: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}, 423, "lock-held", "60"},
		"not held":              {lock.ErrNotHeld, 404, "lock-not-found", ""},
		"expired":               {lock.ErrExpired, 404, "lock-not-found", ""},
		"of another owner":      {lock.ErrOwnerMismatch, 403, "wrong-lock-token", ""},
		"another grant":         {lock.ErrOtherGrant, 412, "version-mismatch", ""},
		"stale":                 {lock.ErrStale, 412, "version-mismatch", ""},
		"refused":               {&lock.RefusedError{Reason: "exceeded quota: locks"}, 403, "refused-by-cluster", ""},
		"invalid":               {&lock.InvalidError{Problems: field.ErrorList{field.NotFound(field.NewPath("spec", "holderRef", "name"), "p")}}, 400, "invalid-request", ""},
		"lapsed":                {fmt.Errorf("acquire: %w", rules.Lapsed(time.Millisecond)), 400, "invalid-request", ""},
		"no namespace":          {fmt.Errorf("acquire: %w: the namespace does not exist", lock.ErrInvalid), 400, "invalid-request", ""},
		"unavailable":           {fmt.Errorf("acquire: %w: secret cause", lock.ErrUnavailable), 503, "unavailable", "1"},
		"of a limit":            {limits.ErrInFlight, 503, "unavailable", "1"},
		"of the caller's limit": {limits.ErrCallerInFlight, 429, "too-many-calls", "1"},
		"unexpected":            {errors.New("secret cause"), 500, "internal-error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			token := f.acquire(report, ofSixty)
			f.locks.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
				if call.Verb == locktest.Get && errors.Is(test.err, lock.ErrOwnerMismatch) {
					return nil
				}
				return test.err
			}})
			requests := []func() answer{
				func() answer { return f.do(http.MethodPost, report, ofSixty) },
				func() answer { return f.do(http.MethodPut, report, ofSixty, "X-Lock-Token", "t") },
				func() answer { return f.do(http.MethodDelete, report, "", "X-Lock-Token", "t") },
				func() answer { return f.do(http.MethodDelete, report+"?force=true&reason=r", "") },
			}
			switch test.status {
			case http.StatusLocked: // Only an acquire meets it.
				requests = requests[:1]
			case http.StatusPreconditionFailed: // Only what has a condition meets it.
				requests = requests[1:3]
			}
			for _, request := range requests {
				got := request()
				got.want(test.status, test.problem)
				if got.header.Get("Retry-After") != test.retryAfter {
					t.Errorf("Retry-After %q, want %q", got.header.Get("Retry-After"), test.retryAfter)
				}
				if strings.Contains(got.body, "secret") {
					t.Errorf("told: %s", got.body)
				}
			}
			if errors.Is(test.err, lock.ErrNotHeld) {
				f.do(http.MethodDelete, report, "", "X-Lock-Token", token).want(http.StatusGone, "lock-ended")
			}
		})
	}
}

func TestInvalidRequestsNameFieldValueAndBound(t *testing.T) {
	f := newFixture(t)
	low, high, none, wait, day := 0.001, 86400.0, 0.0, 60.0, 86400.0
	for body, want := range map[string][]rest.FieldError{
		`{}`:                                  {{In: "body", Field: "ttl_seconds", Detail: "is required", Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":0}`:                   {{In: "body", Field: "ttl_seconds", Value: 0.0, Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":-1}`:                  {{In: "body", Field: "ttl_seconds", Value: -1.0, Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":86400.1}`:             {{In: "body", Field: "ttl_seconds", Value: 86400.1, Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":1e99}`:                {{In: "body", Field: "ttl_seconds", Value: 1e99, Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":"60"}`:                {{In: "body", Field: "ttl_seconds", Value: "60"}},
		`{"ttl_seconds":null}`:                {{In: "body", Field: "ttl_seconds", Minimum: &low, Maximum: &high}},
		`{"ttl_seconds":true}`:                {{In: "body", Field: "ttl_seconds", Value: true}},
		`{"TTL_seconds":60}`:                  {{In: "body", Field: "ttl_seconds", Minimum: &low, Maximum: &high}, {In: "body", Field: "TTL_seconds"}},
		`{"ttl_seconds":1,"a":1}`:             {{In: "body", Field: "a"}},
		`{"ttl_seconds":1,"k":{}}`:            {{In: "body", Field: "k"}},
		`{"ttl_seconds":1,"wait_seconds":61}`: {{In: "body", Field: "wait_seconds", Value: 61.0, Minimum: &none, Maximum: &wait}},
		`{"ttl_seconds":1,"reason":"` + strings.Repeat("é", 1025) + `"}`:                          {{In: "body", Field: "reason", MaxLength: 1024}},
		`{"ttl_seconds":1,"reason":1}`:                                                            {{In: "body", Field: "reason", Value: 1.0}},
		`{"ttl_seconds":1,"function":""}`:                                                         {{In: "body", Field: "function"}},
		`{"ttl_seconds":1,"function":"a\nb"}`:                                                     {{In: "body", Field: "function", Value: "a\nb"}},
		`{"ttl_seconds":1,"ttl_seconds":2,"reason":3}`:                                            {{In: "body", Field: "ttl_seconds"}, {In: "body", Field: "reason", Value: 3.0}},
		`{"ttl_seconds":1,"function":"\ud800"}`:                                                   {{In: "body", Field: "function"}},
		`{"ttl_seconds":1,"holder_ref":{"api_version":"v1","kind":"Pod","name":"../x","uid":""}}`: {{In: "body", Field: "holder_ref.uid"}, {In: "body", Field: "holder_ref.name", Value: "../x"}},
		`{"ttl_seconds":1,"holder_ref":{"a":1}}`: {
			{In: "body", Field: "holder_ref.api_version"}, {In: "body", Field: "holder_ref.kind"}, {In: "body", Field: "holder_ref.name"},
			{In: "body", Field: "holder_ref.uid"}, {In: "body", Field: "holder_ref.a"},
		},
		`{"ttl_seconds":1,"holder_ref":[]}`:                {{In: "body", Field: "holder_ref"}},
		`{"ttl_seconds":1,"release_delay_seconds":86401}`:  {{In: "body", Field: "release_delay_seconds", Value: 86401.0, Minimum: &none, Maximum: &day}},
		`{"ttl_seconds":1,"release_delay_seconds":1}`:      {{In: "body", Field: "release_delay_seconds"}},
		`{"ttl_seconds":0,"wait_seconds":"1","reason":[]}`: {{In: "body", Field: "ttl_seconds", Value: 0.0, Minimum: &low, Maximum: &high}, {In: "body", Field: "reason", Value: []any{}}, {In: "body", Field: "wait_seconds", Value: "1"}},
	} {
		got := f.do(http.MethodPost, report, body).want(http.StatusBadRequest, "invalid-request").problem()
		for i := range got.Errors {
			if got.Errors[i].Detail == "" {
				t.Errorf("%s: nothing is said of %s", body, got.Errors[i].Field)
			}
			got.Errors[i].Detail = ""
		}
		for i := range want {
			want[i].Detail = ""
		}
		if diff := cmp.Diff(want, got.Errors); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for _, priority := range []string{"1.5", `"1"`, "2147483648", "2147483647.5", "1e10", "true"} {
		f.do(http.MethodPost, report, `{"ttl_seconds":1,"priority":`+priority+`}`).want(http.StatusBadRequest, "invalid-request")
	}
	for _, body := range []string{"", "1", "[]", `{"ttl_seconds":1`, `{"ttl_seconds":1}x`, "{\"ttl_seconds\":1,\"reason\":\"\xff\"}", `{ttl_seconds:1}`, strings.Repeat(`{"a":`, 20000)} {
		got := f.do(http.MethodPost, report, body, "Content-Type", "application/json")
		if len(body) > 64<<10 {
			got.want(http.StatusRequestEntityTooLarge, "body-too-large")
		} else {
			got.want(http.StatusBadRequest, "invalid-request")
		}
	}
	if keys := f.left(); len(keys) > 0 {
		t.Errorf("acquired %q", keys)
	}
}

func TestQueriesNameWhatIsWrong(t *testing.T) {
	f := newFixture(t)
	for query, want := range map[string]string{
		"limit=0": "limit", "limit=501": "limit", "limit=x": "limit", "limit=": "limit", "limits=1": "limits", "watch=1": "watch",
		"limit=1&limit=2": "limit", "continue=%25": "continue", "prefix=%FF": "prefix", "function=f": "function",
		"prefix=" + strings.Repeat("a", 513): "prefix", "watch=true&prefix=" + strings.Repeat("%CC%81", 257): "prefix",
	} {
		got := f.do(http.MethodGet, "/v1/namespaces/payments/locks?"+query, "").want(http.StatusBadRequest, "invalid-request").problem()
		if len(got.Errors) != 1 || got.Errors[0].Field != want || got.Errors[0].In != "query" {
			t.Errorf("%s: %+v", query, got.Errors)
		}
	}
	f.do(http.MethodGet, "/v1/namespaces/payments/locks?prefix="+strings.Repeat("a", 512), "").want(http.StatusOK)
	for _, query := range []string{"function=", "function=%00", "watch=maybe", "force=true", "reason=x", "a;b", "%zz"} {
		f.do(http.MethodGet, report+"?"+query, "").want(http.StatusBadRequest, "invalid-request")
		f.do(http.MethodPost, report+"?"+query, ofSixty).want(http.StatusBadRequest, "invalid-request")
	}
	for _, key := range []string{"short", strings.Repeat("k", 256), "0123456789 abcdef", "0123456789abcdéf"} {
		got := f.do(http.MethodPost, report, ofSixty, "Idempotency-Key", key).want(http.StatusBadRequest, "invalid-request")
		if strings.Contains(got.body, key) {
			t.Errorf("a secret is told: %s", got.body)
		}
	}
	f.do(http.MethodPost, report, ofSixty, "Idempotency-Key", "0123456789abcdef", "Idempotency-Key", "0123456789abcdef").want(http.StatusBadRequest, "invalid-request")
	f.do(http.MethodPost, "/v1/namespaces/Payments/locks/k", ofSixty).want(http.StatusBadRequest, "invalid-request")
}

func TestMethodsAndPaths(t *testing.T) {
	f := newFixture(t)
	for _, method := range []string{http.MethodPatch, http.MethodOptions, "LOCK"} {
		got := f.do(method, report, "").want(http.StatusMethodNotAllowed, "method-not-allowed")
		if allow := got.header.Get("Allow"); allow != "DELETE, GET, HEAD, POST, PUT" {
			t.Errorf("Allow: %s", allow)
		}
	}
	if got := f.do(http.MethodPost, "/v1/namespaces/payments/locks", ofSixty).want(http.StatusMethodNotAllowed, "method-not-allowed"); got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("Allow: %s", got.header.Get("Allow"))
	}
	for _, path := range []string{"/v1/", "/v1/namespaces/payments", "/v1/namespaces/payments/locks/", report + "/", report + "/lock", "/v1/namespaces/payments/lock/k"} {
		f.do(http.MethodGet, path, "").want(http.StatusNotFound, "not-found")
	}
}

func TestMediaTypes(t *testing.T) {
	f := newFixture(t)
	f.acquire(report, ofSixty)
	for _, accepted := range []string{"*/*", "application/*", "application/json", "text/html, application/json;q=0.1", "application/json; charset=utf-8"} {
		f.do(http.MethodGet, report, "", "Accept", accepted).want(http.StatusOK)
	}
	for _, accepted := range []string{"text/html", "text/event-stream", "application/json;q=0", "*/*, application/json;q=0", "x"} {
		f.do(http.MethodGet, report, "", "Accept", accepted).want(http.StatusNotAcceptable, "not-acceptable")
	}
	f.do(http.MethodGet, report+"?watch=true", "", "Accept", "application/json").want(http.StatusNotAcceptable, "not-acceptable")
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json/x", ";"} {
		got := f.do(http.MethodPost, report, ofSixty, "Content-Type", contentType).want(http.StatusUnsupportedMediaType, "unsupported-media-type")
		if got.header.Get("Accept") != "application/json" {
			t.Errorf("Accept: %s", got.header.Get("Accept"))
		}
	}
	f.send(httptest.NewRequestWithContext(t.Context(), http.MethodPost, report, strings.NewReader(ofSixty)), ofSixty).want(http.StatusUnsupportedMediaType)
	f.do(http.MethodPost, report, ofSixty, "Content-Type", "application/json", "Content-Encoding", "gzip").want(http.StatusUnsupportedMediaType, "unsupported-media-type")
	f.do(http.MethodPost, report+"2", ofSixty, "Content-Type", "Application/JSON; charset=utf-8").want(http.StatusCreated)
}

// brokenBody fails with an error.
type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

func TestBodiesThatDoNotArrive(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		err     error
		status  int
		problem string
	}{
		{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "body-timeout"},
		{errors.New("connection reset"), http.StatusBadRequest, "invalid-request"},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, report, brokenBody{test.err})
		f.send(request, "").want(test.status, test.problem)
	}
	f = newFixture(t, func(s *testfacade.Settings) { s.Server.Limits.BodyBytes = 8 })
	f.do(http.MethodPost, report, ofSixty).want(http.StatusServiceUnavailable, "unavailable")
}

func TestCallersWithoutRights(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) {
		s.Access = &callers{deny: []string{"bob create", "bob get", "bob list", "bob watch"}}
	})
	token := f.acquire(report, ofSixty)
	for _, got := range []answer{
		f.do(http.MethodPost, report+"2", ofSixty, "User", "bob"), f.do(http.MethodGet, report, "", "User", "bob"),
		f.do(http.MethodGet, "/v1/namespaces/payments/locks", "", "User", "bob"), f.do(http.MethodGet, report+"?watch=true", "", "User", "bob"),
		f.do(http.MethodPut, report, ofSixty, "User", "bob", "X-Lock-Token", token), f.do(http.MethodDelete, report, "", "User", "bob", "X-Lock-Token", token),
	} {
		got.want(http.StatusForbidden, "forbidden")
	}
	for _, path := range []string{report, "/v1/namespaces/payments/locks"} {
		if got := f.do(http.MethodGet, path, "", "User", "nobody").want(http.StatusUnauthorized, "unauthenticated"); got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("WWW-Authenticate %q", got.header.Get("WWW-Authenticate"))
		}
	}
}

func TestWithoutIdentitiesOneNamespaceIsServed(t *testing.T) {
	f := newFixture(t, withoutIdentities)
	f.do(http.MethodPost, "/v1/namespaces/billing/locks/k", ofSixty).want(http.StatusNotFound, "namespace-not-served")
	f.acquire(report, ofSixty)
	f.do(http.MethodDelete, report+"?force=true", "").want(http.StatusNoContent)
}
