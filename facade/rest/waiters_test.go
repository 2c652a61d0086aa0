package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const waitersOfReport = report + "/waiters"

// lineOf is a façade with a lock that callers wait for.
func lineOf(t *testing.T, number int, changes ...func(*testfacade.Settings)) *fixture {
	t.Helper()
	line := new(lined)
	f := newFixture(t, append(changes, func(s *testfacade.Settings) { s.Locks = line })...)
	line.Backend, line.Streamer = f.locks, f.locks
	f.holdDirectly("billing:report", "", "bob", time.Minute)
	for i := range number {
		line.waiters = append(line.waiters, lock.Waiter{
			Namespace: "payments", Scope: v1alpha1.ScopeGlobal, Key: "billing:report", Place: i + 1, Priority: int32(i), Holder: fmt.Sprint("caller ", i+1),
			Reason: strings.Repeat("<", 100), Door: "forrst", Since: f.clock.Now(), Until: f.clock.Now().Add(time.Minute),
		})
	}
	return f
}

func listed(t *testing.T, from answer) wire.Waiters {
	t.Helper()
	var found wire.Waiters
	if err := json.Unmarshal([]byte(from.body), &found); err != nil || from.status != http.StatusOK {
		t.Fatalf("%d %s: %v", from.status, from.body, err)
	}
	return found
}

func TestThoseThatWaitAreListed(t *testing.T) {
	f := lineOf(t, 3)
	for _, path := range []string{waitersOfReport, "/v1/namespaces/payments/waiters"} {
		whole := listed(t, f.do(http.MethodGet, path, ""))
		want := wire.Waiter{
			Key: "billing:report", Place: 2, Priority: 1, Holder: "caller 2", Reason: strings.Repeat("<", 100), Door: "forrst",
			Since: "2026-03-15T10:30:00.000000Z", Until: "2026-03-15T10:31:00.000000Z",
		}
		if len(whole.Waiters) != 3 || whole.More || !cmp.Equal(whole.Waiters[1], want) {
			t.Errorf("%s: %+v", path, whole)
		}
		if part := listed(t, f.do(http.MethodGet, path+"?limit=2", "")); len(part.Waiters) != 2 || !part.More {
			t.Errorf("%s: %+v", path, part)
		}
	}
}

func TestARefusalTellsHowManyWait(t *testing.T) {
	f := lineOf(t, 3)
	for path, body := range map[string]string{report: ofSixty, acquisitions: `{"keys":["a","billing:report"],"ttl_seconds":60}`} {
		refused := f.do(http.MethodPost, path, body)
		var problem struct {
			Waiting *int `json:"waiting"`
		}
		if err := json.Unmarshal([]byte(refused.body), &problem); err != nil || refused.status != http.StatusLocked || problem.Waiting == nil || *problem.Waiting != 3 {
			t.Errorf("%d %s: %v", refused.status, refused.body, err)
		}
	}
}

// A list of those that wait makes work at all replicas, and its answer is in memory until the caller has read it.
func TestListsOfWaitersAreBounded(t *testing.T) {
	f := lineOf(t, 3, func(s *testfacade.Settings) {
		s.Server.Limits, s.Server.Clock = limits.Limits{RatePerCaller: 1}, s.Clock
	})
	statuses := map[int]int{}
	for range 2 {
		statuses[f.do(http.MethodGet, waitersOfReport, "").status]++
	}
	if statuses[http.StatusOK] == 0 || statuses[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers by status: %v", statuses)
	}
	f = lineOf(t, 300, func(s *testfacade.Settings) { s.Server.Limits.BodyBytes = 20_000 })
	if got := f.do(http.MethodGet, waitersOfReport+"?limit=300", ""); got.status != http.StatusServiceUnavailable {
		t.Errorf("%d with an answer of %d bytes", got.status, len(got.body))
	}
}
