package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// tokenUsers takes a bearer token for the name of the user, who may do everything unless it is eve.
type tokenUsers struct{}

func (tokenUsers) Authenticate(r *http.Request) (user.Info, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-of-")
	if !ok {
		return nil, fmt.Errorf("%w: send a bearer token", lock.ErrUnauthenticated)
	}
	return &user.DefaultInfo{Name: name}, nil
}

func (tokenUsers) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	if who.GetName() == "eve" {
		return fmt.Errorf("%w: eve lacks %s", lock.ErrForbidden, right.Verb)
	}
	return nil
}

// refusingFacade has both doors, where a caller may make a few calls, on a clock that stands still.
type refusingFacade struct {
	t       *testing.T
	handler http.Handler
	records audittest.Recorder
}

var refusedAt = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func newRefusingFacade(t *testing.T) *refusingFacade {
	t.Helper()
	f := &refusingFacade{t: t}
	clock := clocktesting.NewFakeClock(refusedAt)
	var err error
	f.handler, err = testfacade.New(testfacade.Settings{
		Locks: locktest.New(locktest.WithClock(clock)), Access: tokenUsers{}, Clock: clock,
		Server: server.Options{Clock: clock, Audit: &f.records, Limits: limits.Limits{RatePerCaller: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rest sends a request to the REST door.
func (f *refusingFacade) rest(who, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	return f.send(who, httptest.NewRequestWithContext(f.t.Context(), method, "/v1/namespaces/payments/locks"+path, strings.NewReader(body)), headers...)
}

// forrst calls a function of the Forrst door.
func (f *refusingFacade) forrst(who, function, arguments string) *httptest.ResponseRecorder {
	body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":%q,"arguments":%s}}`, function, arguments)
	return f.send(who, httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, "/forrst/payments", strings.NewReader(body)))
}

func (f *refusingFacade) send(who string, request *http.Request, headers ...string) *httptest.ResponseRecorder {
	request.Header.Set("Content-Type", "application/json")
	if who != "" {
		request.Header.Set("Authorization", "Bearer token-of-"+who)
	}
	for index := 0; index < len(headers); index += 2 {
		request.Header.Set(headers[index], headers[index+1])
	}
	answer := httptest.NewRecorder()
	f.handler.ServeHTTP(answer, request)
	return answer
}

// acquire takes the lock billing:report for alice, through the REST door, and returns its token.
func (f *refusingFacade) acquire() string {
	f.t.Helper()
	answer := f.rest("alice", http.MethodPost, "/billing:report", `{"ttl_seconds":60}`)
	var granted struct {
		LockToken string `json:"lock_token"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &granted); err != nil || granted.LockToken == "" {
		f.t.Fatalf("got %s, %v", answer.Body, err)
	}
	return granted.LockToken
}

// Each refusal of each door is on record, with the caller, the lock and the reason, and without a token.
func TestRefusalsAreOnRecord(t *testing.T) {
	const ofReport = `{"key":"lock:billing:report","owner":"secret-owner"}`
	locked := func(of audit.Record) audit.Record {
		of.Lock, of.Key = "billing--report", "billing:report"
		return of
	}
	cases := map[string]struct {
		door   string
		call   func(f *refusingFacade) *httptest.ResponseRecorder
		status int
		want   audit.Record
	}{
		"no token at the REST door": {"rest", func(f *refusingFacade) *httptest.ResponseRecorder {
			return f.rest("", http.MethodDelete, "/billing:report", "")
		}, http.StatusUnauthorized, audit.Record{Reason: audit.Unauthenticated, Client: "192.0.2.1/32"}},
		"no right at the REST door": {"rest", func(f *refusingFacade) *httptest.ResponseRecorder {
			return f.rest("eve", http.MethodDelete, "/billing:report?force=true&reason=mine", "")
		}, http.StatusForbidden, locked(audit.Record{Reason: audit.Forbidden, Actor: "eve", Namespace: "payments", Operation: "force_release"})},
		"a foreign token at the REST door": {"rest", func(f *refusingFacade) *httptest.ResponseRecorder {
			return f.rest("bob", http.MethodDelete, "/billing:report", "", "X-Lock-Token", f.acquire())
		}, http.StatusForbidden, locked(audit.Record{Reason: audit.WrongOwner, Actor: "bob", Namespace: "payments", Operation: "release"})},
		"too many calls at the REST door": {"rest", func(f *refusingFacade) *httptest.ResponseRecorder {
			for range 3 { // The review of the right is another one.
				f.rest("bob", http.MethodGet, "/billing:report", "")
			}
			return f.rest("bob", http.MethodPost, "/billing:report", `{"ttl_seconds":60,"function":"close"}`)
		}, http.StatusTooManyRequests, audit.Record{
			Reason: audit.RateLimited, Actor: "bob", Namespace: "payments", Operation: "acquire", Lock: "close--billing--report", Key: "close:billing:report",
		}},
		"no token at the Forrst door": {"forrst", func(f *refusingFacade) *httptest.ResponseRecorder {
			return f.forrst("", "forrst.locks.release", ofReport)
		}, http.StatusUnauthorized, audit.Record{Reason: audit.Unauthenticated, Client: "192.0.2.1/32"}},
		"no right at the Forrst door": {"forrst", func(f *refusingFacade) *httptest.ResponseRecorder {
			return f.forrst("eve", "forrst.locks.forceRelease", `{"key":"lock:billing:report","reason":"mine"}`)
		}, http.StatusForbidden, locked(audit.Record{Reason: audit.Forbidden, Actor: "eve", Namespace: "payments", Operation: "force-release"})},
		"a foreign owner at the Forrst door": {"forrst", func(f *refusingFacade) *httptest.ResponseRecorder {
			f.acquire()
			return f.forrst("bob", "forrst.locks.release", ofReport)
		}, http.StatusForbidden, locked(audit.Record{Reason: audit.WrongOwner, Actor: "bob", Namespace: "payments", Operation: "release"})},
		"too many calls at the Forrst door": {"forrst", func(f *refusingFacade) *httptest.ResponseRecorder {
			for range 3 {
				f.forrst("bob", "forrst.locks.status", `{"key":"lock:billing:report"}`)
			}
			return f.forrst("bob", "forrst.locks.status", `{"key":"lock:billing:report"}`)
		}, http.StatusTooManyRequests, locked(audit.Record{Reason: audit.RateLimited, Actor: "bob", Namespace: "payments", Operation: "status"})},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newRefusingFacade(t)
			if answer := test.call(f); answer.Code != test.status {
				t.Fatalf("status %d, want %d: %s", answer.Code, test.status, answer.Body)
			}
			want := test.want
			want.Schema, want.Event, want.Via, want.Door, want.Time = audit.Schema, audit.Refused, audit.Facade, test.door, v1alpha1.NewTimestamp(refusedAt)
			records := f.records.All()
			if len(records) != 1 {
				t.Fatalf("records are %+v, want one", records)
			}
			if want.Message = records[0].Message; want.Message == "" {
				t.Error("the record does not say what the caller was told")
			}
			if diff := cmp.Diff(want, records[0]); diff != "" {
				t.Errorf("the record (-want +got):\n%s", diff)
			}
			text, err := json.Marshal(records)
			if err != nil || strings.Contains(string(text), "token-of-") || strings.Contains(string(text), "secret-owner") || strings.Contains(string(text), "lock_") {
				t.Errorf("tells a token: %s, %v", text, err)
			}
		})
	}
}

// What is no refusal has no record: an answer, a lock that is held, and a request that makes no sense.
func TestOtherAnswersAreNoRefusals(t *testing.T) {
	f := newRefusingFacade(t)
	f.acquire()
	f.rest("bob", http.MethodPost, "/billing:report", `{"ttl_seconds":60}`)
	f.rest("bob", http.MethodPut, "/billing:other", `{`)
	f.forrst("bob", "forrst.locks.unknown", `{}`)
	if records := f.records.All(); len(records) > 0 {
		t.Errorf("records are %+v, want none", records)
	}
}
