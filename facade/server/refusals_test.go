package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/audit"
)

// Each refusal of each door is on record, with the caller, the lock and the reason, and without a token.
func TestRefusalsAreOnRecord(t *testing.T) {
	const report = "billing:report"
	about := audit.Record{Namespace: "payments", Lock: "billing--report", Key: report}
	for name, test := range map[string]struct {
		who    string
		ask    ask
		status int
		reason audit.Reason
		want   audit.Record
		// operations are the names of the operation at the doors.
		operations map[string]string
	}{
		"no token":        {"", ask{verb: "release", key: report}, http.StatusUnauthorized, audit.Unauthenticated, audit.Record{Client: "192.0.2.1/32"}, nil},
		"no right":        {"eve", ask{verb: "force", key: report}, http.StatusForbidden, audit.Forbidden, about, map[string]string{"rest": "force_release", "forrst": "force-release"}},
		"a foreign token": {"bob", ask{verb: "release", key: report}, http.StatusForbidden, audit.WrongOwner, about, map[string]string{"rest": "release", "forrst": "release"}},
		"too many calls": {"bob", ask{verb: "acquire", key: report, function: "close"}, http.StatusTooManyRequests, audit.RateLimited,
			audit.Record{Namespace: "payments", Lock: "close--billing--report", Key: "close:billing:report"}, map[string]string{"rest": "acquire", "forrst": "acquire"}},
	} {
		t.Run(name, func(t *testing.T) {
			atEachDoor(t, func(t *testing.T, door string) {
				d := openDoors(t, withLimits(limits.Limits{RatePerCaller: 2}))
				d.users.deny = set("eve force-release")
				test.ask.token = d.acquire(door, report)
				if test.reason == audit.RateLimited {
					for range 3 { // The review of the right is another one.
						d.ask(door, test.who, ask{verb: "status", key: report}).want(http.StatusOK)
					}
				}
				got := d.ask(door, test.who, test.ask)
				if records := d.records.All(); got.status != test.status || len(records) != 1 {
					t.Fatalf("status %d, want %d: %s; records are %+v, want one", got.status, test.status, got.body, records)
				}
				record, want := d.records.All()[0], test.want
				want.Schema, want.Event, want.Via, want.Time = audit.Schema, audit.Refused, audit.Facade, v1alpha1.NewTimestamp(refusedAt)
				want.Door, want.Actor, want.Reason, want.Operation, want.Message = door, test.who, test.reason, test.operations[door], record.Message
				if diff := cmp.Diff(want, record); diff != "" || want.Message == "" {
					t.Errorf("the record (-want +got):\n%s", diff)
				}
				text, err := json.Marshal(record)
				if err != nil || strings.Contains(string(text), "token-of-") || strings.Contains(string(text), "secret-owner") || strings.Contains(string(text), "lock_") {
					t.Errorf("tells a token: %s, %v", text, err)
				}
			})
		})
	}
}

// A refusal of several locks is about the one for which the caller lacks the right, not about the first.
func TestARefusalOfSeveralLocksNamesTheOne(t *testing.T) {
	for door, request := range map[string]*http.Request{
		"rest": httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/namespaces/payments/acquisitions", strings.NewReader(`{"keys":["a","b"],"ttl_seconds":60}`)),
		"forrst": httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/forrst/payments",
			strings.NewReader(forrstCall("urn:k8s:forrst:ext:atomic-lock:fn:acquire-all", `{"keys":["a","b"]}`))),
	} {
		d := openDoors(t)
		d.users.deny, d.users.allow = set("eve create"), set("eve create a")
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer token-of-eve")
		got := d.send(door, request)
		if records := d.records.All(); got.status != http.StatusForbidden || len(records) != 1 || records[0].Key != "b" || records[0].Lock != "b" {
			t.Errorf("%s: status %d, records %+v: %s", door, got.status, records, got.body)
		}
	}
}

// What is no refusal has no record: an answer, a lock that is held, and a request that makes no sense.
func TestOtherAnswersAreNoRefusals(t *testing.T) {
	atEachDoor(t, func(t *testing.T, door string) {
		d := openDoors(t)
		d.acquire(door, "k")
		for _, other := range []ask{{verb: "acquire", key: "k"}, {verb: "acquire", key: "other", members: `"priority":"x"`}, {verb: "unknown", key: "k"}} {
			d.ask(door, "bob", other)
		}
		if records := d.records.All(); len(records) > 0 {
			t.Errorf("records are %+v, want none", records)
		}
	})
}
