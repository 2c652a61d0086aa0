package measure_test

import (
	"context"
	"testing"
	"time"

	"forrst.dev/lock-operator/test/bench/measure"
)

// slowLocker takes longer to acquire than the turn lasts.
type slowLocker struct{}

const (
	slowTurn    = 5 * time.Millisecond
	slowAcquire = 4 * slowTurn
)

func (slowLocker) Acquire(ctx context.Context, _ string) error {
	return measure.WaitUntil(ctx, time.Now().Add(slowAcquire))
}

func (slowLocker) Release(context.Context, string) error { return nil }

func (slowLocker) Close() {}

func TestACycleThatTheEndOfATurnInterrupts(t *testing.T) {
	for _, countsParts := range []bool{false, true} {
		turn := measure.Turn{
			Lockers: []measure.Locker{slowLocker{}}, Key: func(int) string { return "" }, Length: slowTurn, CountsParts: countsParts,
		}
		measured, err := turn.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		isPart := measured.Cycles > 0 && measured.Cycles <= float64(slowTurn)/float64(slowAcquire)
		if len(measured.Latencies) != 1 || isPart != countsParts || (!countsParts && measured.Cycles != 0) {
			t.Errorf("counting parts %t, a turn in which one cycle begins has %d latencies and %v cycles", countsParts, len(measured.Latencies), measured.Cycles)
		}
	}
}
