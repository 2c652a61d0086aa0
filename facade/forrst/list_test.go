package forrst_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// A caller that does not know of pages must not take a part for the whole.
func TestAListThatIsNotAskedForInPartsIsWhole(t *testing.T) {
	f := newFixture(t)
	for i := range 4 * wire.MaxListed {
		f.hold(fmt.Sprintf("k%04d", i), "o", time.Minute)
	}
	var list wire.Locks
	if err := json.Unmarshal(f.post(envelopeWith(wire.List, "", "")).Result, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Locks) != 4*wire.MaxListed || list.Continue != "" {
		t.Errorf("%d locks, continue %q", len(list.Locks), list.Continue)
	}
	f.hold("one more", "o", time.Minute)
	got := f.post(envelopeWith(wire.List, "", ""))
	f.wantProblems(got, 400, "INVALID_ARGUMENTS /call/arguments/limit")
	if !strings.Contains(got.body, "send a limit of at most 500") {
		t.Error(got.body)
	}
}

func TestEachPageOfAWholeListCountsAgainstTheRate(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Server.Limits, config.Server.Clock = limits.Limits{RatePerCaller: 1}, config.Clock
	})
	for i := range 2*wire.MaxListed + 1 {
		f.hold(fmt.Sprintf("k%04d", i), "o", time.Minute)
	}
	f.wantProblems(f.post(envelopeWith(wire.List, "", "")), 429, "RATE_LIMITED")
}
