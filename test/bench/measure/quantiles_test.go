package measure

import (
	"math"
	"testing"
	"time"
)

func TestRatioOfQuantiles(t *testing.T) {
	rounds := func(quiet, disturbed time.Duration, disturbances ...string) *Result {
		var result Result
		for _, disturbance := range disturbances {
			round := Round{PerSecond: 1, Acquires: []time.Duration{quiet, quiet}, Disturbance: disturbance}
			if disturbance != "" {
				round.Acquires = []time.Duration{disturbed}
			}
			result.Rounds = append(result.Rounds, round)
		}
		return &result
	}
	over := rounds(4*time.Millisecond, time.Second, "", "", "", "steal")
	under := rounds(2*time.Millisecond, 0, "", "")
	if got := RatioOfQuantiles(over, under, 0.99); got.Median != 2 || got.IsBusy || got.Rounds != 3 || !math.IsNaN(got.Low) || !math.IsNaN(got.High) {
		t.Errorf("with one disturbed round of four: got %+v, want 2 of three rounds", got)
	}
	busy := rounds(4*time.Millisecond, time.Second, "", "steal", "steal")
	if got := RatioOfQuantiles(busy, under, 0.99); got.Median != 500 || !got.IsBusy {
		t.Errorf("with most rounds disturbed: got %+v, want all of them, and no verdict", got)
	}
}
