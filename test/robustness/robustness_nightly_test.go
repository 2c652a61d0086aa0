//go:build nightly

package robustness_test

import (
	"os"
	"testing"
	"time"
)

// TestRobustnessOfSeparateLines also judges liveness. Each replica has the line of its own callers.
func TestRobustnessOfSeparateLines(t *testing.T) { judge(t, false) }

// TestRobustnessOfSharedLines is the same with replicas whose callers stand in one line, and with faults between the replicas.
func TestRobustnessOfSharedLines(t *testing.T) { judge(t, true, peerFaults...) }

func judge(t *testing.T, isShared bool, others ...fault) {
	t.Helper()
	outcome := run(t, options{
		length: lengthOf(t, 30*time.Second), seed: seedOf(t), allowance: skewAllowance,
		replicas: 3, lanes: 2, isLong: os.Getenv("DURATION") != "", isShared: isShared, judgesLiveness: true,
		faults: faultsOf(t, others...), rest: aftermath + calm + time.Second, workload: ordinary,
	})
	outcome.mustBeClean(t)
}

// lengthOf returns $DURATION, or otherwise if it is unset.
func lengthOf(tb testing.TB, otherwise time.Duration) time.Duration {
	tb.Helper()
	text := os.Getenv("DURATION")
	if text == "" {
		return otherwise
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatalf("DURATION: %v", err)
	}
	return length
}
