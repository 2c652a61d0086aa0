package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// connection is one that holds a lock.
type connection struct {
	*source

	header http.Header
}

// hold holds the lock of reports by a connection.
func (f *fixture) hold(served *httptest.Server, method, body string, status int, headers ...string) *connection {
	f.t.Helper()
	return f.holdAt(served, method, report, body, status, headers...)
}

// holdAt holds a lock by a connection.
func (f *fixture) holdAt(served *httptest.Server, method, path, body string, status int, headers ...string) *connection {
	f.t.Helper()
	t, _ := f.t.(*testing.T)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, method, served.URL+path+"?hold=true", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := served.Client().Do(request) //nolint:bodyclose // The source closes it.
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != status || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	s := &source{t: t, scanner: bufio.NewScanner(response.Body), close: func() {
		cancel()
		response.Body.Close()
	}}
	t.Cleanup(s.close)
	return &connection{s, response.Header}
}

func (f *fixture) serve() *httptest.Server {
	served := httptest.NewServer(f.Server)
	f.t.Cleanup(served.Close)
	return served
}

// wantEvent reads the next event but comments.
func (c *connection) wantEvent(name string) wire.Lock {
	c.t.Helper()
	gotName, data := c.nextNamed()
	if err := theContract(c.t).checkEvents("event: " + gotName + "\ndata: " + data + "\n\n"); err != nil {
		c.t.Error(err)
	}
	if gotName != name {
		c.t.Fatalf("event %s, want %s: %s", gotName, name, data)
	}
	var about wire.Lock
	if err := json.Unmarshal([]byte(data), &about); err != nil {
		c.t.Fatal(err)
	}
	return about
}

// wantEnd reads the last event, whose data have the text.
func (c *connection) wantEnd(name, text string) {
	c.t.Helper()
	gotName, data := c.nextNamed()
	if err := theContract(c.t).checkEvents("event: " + gotName + "\ndata: " + data + "\n\n"); err != nil {
		c.t.Error(err)
	}
	if gotName != name || !strings.Contains(data, text) {
		c.t.Fatalf("event %s, want %s: %s", gotName, name, data)
	}
	for c.scanner.Scan() {
		if c.scanner.Text() != "" {
			c.t.Errorf("after %s comes %q", name, c.scanner.Text())
		}
	}
}

func (f *fixture) holder() *v1alpha1.Lock {
	f.t.Helper()
	held, err := f.locks.Get(f.t.Context(), "payments", theReport)
	if err != nil {
		return nil
	}
	return held
}

func (f *fixture) awaitFree() {
	f.t.Helper()
	for f.holder() != nil {
		if f.t.Context().Err() != nil {
			f.t.Fatal("the lock is held still")
		}
		runtime.Gosched()
	}
}

func TestAConnectionHoldsALock(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFixture(t, func(s *testfacade.Settings) { s.Server.Metrics = registry })
	wantHolds := func(number string) {
		t.Helper()
		of := &metric.FacadeWaitingCalls
		if err := testutil.GatherAndCompare(registry, strings.NewReader(exposition.Of(of, of.Name+" "+number+"\n")), of.Name); err != nil {
			t.Error(err)
		}
	}
	served := f.serve()
	connection := f.hold(served, http.MethodPost, `{"ttl_seconds":60,"reason":"rollout"}`, http.StatusCreated)
	acquired := connection.wantEvent("acquired")
	wantHolds("1")
	if acquired.LockToken == "" || acquired.FencingToken == nil || acquired.Reason != "rollout" || connection.header.Get("Location") != report {
		t.Errorf("%+v at %s", acquired, connection.header.Get("Location"))
	}
	if held := f.holder(); held == nil || held.Annotations[v1alpha1.ConnectionAnnotation] == "" {
		t.Errorf("the lock does not tell that a connection holds it: %+v", held)
	}
	for range 3 { // Its ttl would have ended by then.
		f.clock.Step(43 * time.Second)
		renewed := connection.wantEvent("renewed")
		if renewed.ExpiresAt <= acquired.ExpiresAt || renewed.LockToken != "" || *renewed.FencingToken != *acquired.FencingToken {
			t.Errorf("%+v after %+v", renewed, acquired)
		}
		acquired.ExpiresAt = renewed.ExpiresAt
	}
	connection.close()
	f.awaitFree()
	served.Close() // When the call is over.
	wantHolds("0")
}

func TestAConnectionIsToldThatItsLockIsLost(t *testing.T) {
	for name, end := range map[string]func(*fixture, wire.Lock){
		"released": func(f *fixture, held wire.Lock) {
			f.do(http.MethodDelete, report, "", "X-Lock-Token", held.LockToken).want(http.StatusNoContent)
		},
		"broken": func(f *fixture, _ wire.Lock) {
			f.do(http.MethodDelete, report+"?force=true&reason=stuck", "").want(http.StatusNoContent)
		},
		"taken up by another connection": func(f *fixture, held wire.Lock) {
			f.hold(f.serve(), http.MethodPut, ofSixty, http.StatusOK, "X-Lock-Token", held.LockToken).wantEvent("renewed")
			f.clock.Step(43 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			connection := f.hold(f.serve(), http.MethodPost, ofSixty, http.StatusCreated)
			end(f, connection.wantEvent("acquired"))
			connection.wantEnd("lost", `"status":410`)
			if isHeld := f.holder() != nil; isHeld != strings.HasPrefix(name, "taken") {
				t.Errorf("held: %t", isHeld)
			}
		})
	}
}

func TestAConnectionMayWaitForLongerThanItsTTL(t *testing.T) {
	f := newFixture(t)
	f.holdDirectly("billing:report", "o", "bob", time.Hour)
	got := make(chan *connection)
	go func() {
		got <- f.hold(f.serve(), http.MethodPost, `{"ttl_seconds":15,"wait_seconds":50}`, http.StatusCreated)
	}()
	for f.locks.Waiting("payments", theReport) == 0 {
		runtime.Gosched()
	}
	f.clock.Step(20 * time.Second)
	if err := f.locks.Release(t.Context(), "payments", theReport, lock.Proof{Owner: "o"}); err != nil {
		t.Fatal(err)
	}
	connection := <-got
	connection.wantEvent("acquired")
	f.clock.Step(11 * time.Second)
	connection.wantEvent("renewed")
}

// A connection that holds a lock is there for long, so it must not take the places that are kept for renewals.
func TestConnectionsThatTakeALockUpLeaveRoomForRenewals(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) { s.Server.Limits = limits.Limits{InFlight: 10, Shares: 1} })
	served := f.serve()
	var paths, tokens []string
	for number := range 10 {
		paths = append(paths, fmt.Sprintf("/v1/namespaces/payments/locks/held-%d", number))
		tokens = append(tokens, f.acquire(paths[number], ofSixty))
	}
	for number := range 9 {
		f.holdAt(served, http.MethodPut, paths[number], ofSixty, http.StatusOK, "X-Lock-Token", tokens[number]).wantEvent("renewed")
	}
	if status := f.do(http.MethodPut, paths[9]+"?hold=true", ofSixty, "X-Lock-Token", tokens[9]).status; status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
		t.Errorf("status %d of one more connection", status)
	}
	f.do(http.MethodPut, paths[9], ofSixty, "X-Lock-Token", tokens[9]).want(http.StatusOK)
}

func TestSeveralLocksAreNotHeldByAConnection(t *testing.T) {
	f := newFixture(t)
	f.do(http.MethodPost, acquisitions+"?hold=true", both).want(http.StatusBadRequest, "invalid-request")
	set := f.do(http.MethodPost, acquisitions, both).want(http.StatusCreated).set()
	f.do(http.MethodPut, ofBoth+"&hold=true", ofSixty, "X-Lock-Token", set.LockToken).want(http.StatusBadRequest, "invalid-request")
}

func TestALockMovesToAnotherConnection(t *testing.T) {
	f := newFixture(t)
	served := f.serve()
	first := f.hold(served, http.MethodPost, ofSixty, http.StatusCreated)
	acquired := first.wantEvent("acquired")
	second := f.hold(served, http.MethodPut, ofSixty, http.StatusOK, "X-Lock-Token", acquired.LockToken)
	if kept := f.Limiter().BodyBytes(); kept != 0 {
		t.Errorf("%d bytes of bodies are kept", kept)
	}
	if taken := second.wantEvent("renewed"); *taken.FencingToken != *acquired.FencingToken {
		t.Errorf("%+v, want the grant %d", taken, *acquired.FencingToken)
	}
	first.close()
	f.clock.Step(43 * time.Second) // The first one has ended, or finds that the other one holds the lock.
	second.wantEvent("renewed")
	if f.holder() == nil {
		t.Error("the end of the first connection has released the lock")
	}
	second.close()
	f.awaitFree()
}

func TestAStoppingServiceLeavesTheLockToItsClient(t *testing.T) {
	f := newFixture(t)
	served := f.serve()
	connection := f.hold(served, http.MethodPost, ofSixty, http.StatusCreated)
	acquired := connection.wantEvent("acquired")
	f.Limiter().Drain()
	connection.wantEnd("reconnect", "PUT")
	if f.holder() == nil {
		t.Error("the lock was released")
	}
	f.do(http.MethodPut, report+"?hold=true", ofSixty, "X-Lock-Token", acquired.LockToken).want(http.StatusServiceUnavailable)
	f.do(http.MethodPost, "/v1/namespaces/payments/locks/other?hold=true", ofSixty).want(http.StatusServiceUnavailable)
	if left := f.left(); !slices.Equal(left, []string{"billing:report"}) {
		t.Errorf("held: %q", left)
	}
}

func TestAnAuthenticatedConnectionHoldsForHalfAnHour(t *testing.T) {
	f := newFixture(t)
	connection := f.hold(f.serve(), http.MethodPost, `{"ttl_seconds":86400}`, http.StatusCreated)
	connection.wantEvent("acquired")
	f.clock.Step(time.Hour / 2)
	f.clock.Step(reviewed) // If it was written to before.
	connection.wantEnd("reconnect", "PUT")
	if f.holder() == nil {
		t.Error("the lock was released")
	}
}

func TestAConnectionOfNoIdentityHoldsForAsLongAsItLives(t *testing.T) {
	f := newFixture(t, withoutIdentities)
	connection := f.hold(f.serve(), http.MethodPost, `{"ttl_seconds":86400}`, http.StatusCreated)
	connection.wantEvent("acquired")
	f.clock.Step(17 * time.Hour)
	connection.wantEvent("renewed")
}

func TestAConnectionHoldsOnlyAsLongAsItsCallerHasTheRight(t *testing.T) {
	known := &callers{}
	f := newFixture(t, func(s *testfacade.Settings) { s.Access = known })
	connection := f.hold(f.serve(), http.MethodPost, `{"ttl_seconds":3600}`, http.StatusCreated)
	connection.wantEvent("acquired")
	known.deny = []string{"alice create"}
	f.clock.Step(reviewed)
	f.clock.Step(reviewed) // If it was written to before.
	connection.wantEnd("lost", `"verb":"create"`)
	f.awaitFree()
}

// reviewed is within which the right of a caller is asked for again.
const reviewed = time.Minute

// wantFault checks that the answer names the one mistake of the request.
func (a answer) wantFault(field string) {
	a.t.Helper()
	if faults := a.want(http.StatusBadRequest).problem().Errors; len(faults) != 1 || faults[0].Field != field {
		a.t.Errorf("want a mistake in %s: %s", field, a.body)
	}
}

func TestRequestsToHoldAreChecked(t *testing.T) {
	f := newFixture(t)
	f.do(http.MethodPost, report+"?hold=true", `{"ttl_seconds":4.9}`).wantFault("ttl_seconds")
	f.do(http.MethodPost, report+"?hold=maybe", ofSixty).wantFault("hold")
	f.do(http.MethodPost, report+"?hold=true", ofSixty, "Accept", "text/html").want(http.StatusNotAcceptable)
	f.do(http.MethodPost, "/v1/namespaces/payments/locks/of-curl?hold=true", ofSixty, "Accept", "application/json").want(http.StatusCreated)
	token := f.acquire(report, ofSixty)
	f.do(http.MethodPut, report+"?hold=true", `{"ttl_seconds":1}`, "X-Lock-Token", token).wantFault("ttl_seconds")
	f.do(http.MethodPut, report+"?hold=perhaps", ofSixty, "X-Lock-Token", token).wantFault("hold")
	f.do(http.MethodPost, report+"?hold=true", ofSixty).want(http.StatusLocked)
	f.do(http.MethodDelete, report+"?hold=true", "", "X-Lock-Token", token).wantFault("hold")
}
