package forrst_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// lined is a backend with callers that wait for one lock.
type lined struct {
	lock.Backend
	waiters []lock.Waiter
}

func (l *lined) Waiters(_ context.Context, _ string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool, err error) {
	if len(l.waiters) == 0 || key != "" && key != l.waiters[0].FullKey() {
		return nil, true, nil
	}
	return l.waiters[:min(limit, len(l.waiters))], len(l.waiters) <= limit, nil
}

func (l *lined) Lines(_ context.Context, namespace string, key v1alpha1.FullKey, _ int) (lines []lock.Line, isComplete bool, err error) {
	if len(l.waiters) == 0 || key != "" && key != l.waiters[0].FullKey() {
		return nil, true, nil
	}
	first := &l.waiters[0]
	return []lock.Line{{Namespace: namespace, Scope: first.Scope, Function: first.Function, Key: first.Key, Waiting: len(l.waiters)}}, true, nil
}

// lineOf is a façade with the lock "f:k", which callers wait for.
func lineOf(t *testing.T, number int, configure func(*testfacade.Settings)) *fixture {
	t.Helper()
	line := new(lined)
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Locks = line
		configure(config)
	})
	line.Backend = f.locks
	for i := range number {
		line.waiters = append(line.waiters, lock.Waiter{
			Namespace: namespace, Scope: v1alpha1.ScopeFunction, Function: "f", Key: "k", Place: i + 1, Priority: int32(i), Holder: fmt.Sprint("caller ", i+1),
			Reason: "rollout", Door: "rest", Since: f.clock.Now(), Until: f.clock.Now().Add(time.Minute),
		})
	}
	return f
}

func unchanged(*testfacade.Settings) {}

func TestThoseThatWaitAreListed(t *testing.T) {
	f := lineOf(t, 3, unchanged)
	for members, want := range map[string]struct {
		number int
		more   bool
	}{
		`"key":"lock:f:k"`: {3, false}, `"key":"f:k","limit":2`: {2, true}, ``: {3, false}, `"key":"lock:free"`: {0, false},
	} {
		got := decoded[wire.Waiters](t, f.post(envelopeWith(wire.ListWaiters, arguments(members), "")).Result)
		if len(got.Waiters) != want.number || got.More != want.more || got.Waiters == nil {
			t.Errorf("{%s}: %+v", members, got)
		}
		if want.number == 0 {
			continue
		}
		second := wire.Waiter{
			Key: "k", FullKey: "lock:f:k", Scope: wire.FunctionScope, Function: "f", Place: 2, Priority: 1, Holder: "caller 2", Reason: "rollout", Door: "rest",
			Since: "2024-03-15T10:30:00Z", Until: "2024-03-15T10:31:00Z",
		}
		if diff := cmp.Diff(second, got.Waiters[1]); diff != "" {
			t.Errorf("{%s}: (-want +got):\n%s", members, diff)
		}
	}
	if waiting := lineOf(t, 0, unchanged).post(envelopeWith(wire.ListWaiters, "", "")); string(waiting.Result) != `{"waiters":[]}` {
		t.Error(waiting.body)
	}
}

func TestARefusalTellsHowManyWait(t *testing.T) {
	f := lineOf(t, 3, unchanged)
	f.hold("f:k", "o", time.Minute)
	for members, want := range map[string]string{
		`"key":"f:k"`: `"waiting":3`, `"key":"f:k","block":{"value":1}`: `"waiting":3`,
	} {
		if got := f.post(envelopeWith(wire.Acquire, arguments(members), "")); got.status != 423 && got.status != 408 || !strings.Contains(got.body, want) {
			t.Errorf("{%s}: %d %s", members, got.status, got.body)
		}
	}
	// The extension tells of a holder no more than the protocol says.
	if got := f.post(envelopeWith(ping, "", locked(`"key":"f:k","scope":"global",`+ttl))); strings.Contains(got.body, "waiting") {
		t.Error(got.body)
	}
}

func TestListsOfWaitersTakeRoomUntilTheyAreSent(t *testing.T) {
	f := lineOf(t, 300, limitBodies(20_000))
	f.wantProblems(f.post(envelopeWith(wire.ListWaiters, "", "")), 503, "UNAVAILABLE")
	f.wantProblems(f.post(envelopeWith(wire.ListWaiters, arguments(`"limit":501`), "")), 400, "INVALID_ARGUMENTS /call/arguments/limit")
	var part wire.Waiters
	if err := json.Unmarshal(f.post(envelopeWith(wire.ListWaiters, arguments(`"limit":10`), "")).Result, &part); err != nil || len(part.Waiters) != 10 {
		t.Errorf("%+v: %v", part, err)
	}
}
