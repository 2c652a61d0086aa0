package measure

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	hundred := make([]int, 0, 100)
	for value := 100; value > 0; value-- {
		hundred = append(hundred, value)
	}
	for name, test := range map[string]struct {
		values []int
		part   float64
		want   int
	}{
		"the median of one value":            {[]int{7}, 0.5, 7},
		"the median of an odd number":        {[]int{9, 1, 5}, 0.5, 5},
		"the p99 of a hundred values":        {hundred, 0.99, 99},
		"the largest value":                  {hundred, 1, 100},
		"the smallest value":                 {hundred, 0, 1},
		"the p99 of fewer than a hundred":    {[]int{1, 2, 3}, 0.99, 3},
		"nothing, where there are no values": {nil, 0.5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Quantile(test.values, test.part); got != test.want {
				t.Errorf("Quantile(%v, %v) = %v, want %v", test.values, test.part, got, test.want)
			}
		})
	}
}

// resultOf returns a result with the rates of rounds from the first one on.
func resultOf(rates ...float64) *Result {
	result := &Result{}
	for number, rate := range rates {
		result.Rounds = append(result.Rounds, Round{Number: number, PerSecond: rate})
	}
	return result
}

func TestRatioDividesRoundByRound(t *testing.T) {
	// In the second round, the machine itself was slower by a factor of ten.
	got := Ratio(resultOf(90, 9, 900), resultOf(100, 10, 1000), Rate)
	if math.Abs(got.Median-0.9) > 1e-9 || math.Abs(got.Low-0.9) > 1e-9 || math.Abs(got.High-0.9) > 1e-9 || got.Rounds != 3 {
		t.Errorf("the ratio is %+v, want 0.9 in three rounds", got)
	}
}

func TestRatioLeavesOutRoundsWithoutAnything(t *testing.T) {
	if got := Ratio(resultOf(5, 5), resultOf(0, 10), Rate); got.Median != 0.5 || got.Rounds != 1 {
		t.Errorf("the ratio is %+v, want 0.5 in one round", got)
	}
	// Contenders aside take part in some rounds only.
	rare := &Result{Rounds: []Round{{Number: 2, PerSecond: 50}}}
	if got := Ratio(rare, resultOf(1, 1, 100), Rate); got.Median != 0.5 || got.Rounds != 1 {
		t.Errorf("the ratio is %+v, want that of the round of both", got)
	}
}

func TestRatioWithoutRoundsIsNoNumber(t *testing.T) {
	if got := Ratio(resultOf(), resultOf(1), Rate); !math.IsNaN(got.Median) || got.Rounds != 0 {
		t.Errorf("the ratio is %+v, want none", got)
	}
}

// A tenth of a second and then four tenths make two cycles per second.
func TestRatioToSum(t *testing.T) {
	got := RatioToSum(Time, resultOf(2, 2), resultOf(10, 10), resultOf(2.5, 0))
	if math.Abs(got.Median-1) > 1e-9 || got.Rounds != 1 {
		t.Errorf("the ratio is %+v, want 1 in the round that both were measured in", got)
	}
}

func TestRatioOfMediansIsBusyWithEither(t *testing.T) {
	quiet, busy := resultOf(10, 20, 30), resultOf(5, 5, 5)
	for i := range busy.Rounds {
		busy.Rounds[i].Disturbance = "a compiler"
	}
	if got := RatioOfMedians(quiet, resultOf(4, 5, 6), Rate); got.Median != 4 || got.Low != 2 || got.High != 6 || got.IsBusy {
		t.Errorf("the ratio is %+v, want 4 between 2 and 6", got)
	}
	if got := RatioOfMedians(quiet, busy, Rate); !got.IsBusy {
		t.Error("a divisor of disturbed rounds is judged")
	}
	if got := RatioOfMedians(busy, quiet, Rate); !got.IsBusy {
		t.Error("a dividend of disturbed rounds is judged")
	}
}

func TestSpread(t *testing.T) {
	quiet := func(values ...float64) (samples []sample) {
		for _, value := range values {
			samples = append(samples, sample{value: value})
		}
		return samples
	}
	disturbed := sample{value: 100, disturbance: "a compiler"}
	for name, test := range map[string]struct {
		samples []sample
		want    Spread
	}{
		"of quiet rounds": {
			quiet(4, 2, 3, 1), Spread{Median: 2, Low: 1, High: 3, Rounds: 4},
		},
		"leaves out a disturbed round": {
			append(quiet(1, 2), disturbed), Spread{Median: 1, Low: 1, High: 2, Rounds: 2, Disturbed: 1, Disturbance: "a compiler"},
		},
		"of all rounds, and busy, if more than a third were disturbed": {
			append(quiet(1), disturbed), Spread{Median: 1, Low: 1, High: 100, Rounds: 2, Disturbed: 1, Disturbance: "a compiler", IsBusy: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spreadOf(test.samples); got != test.want {
				t.Errorf("the spread is %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestTimeIsTheReciprocalOfTheRate(t *testing.T) {
	if got := Time(Round{PerSecond: 4}); got != 0.25 {
		t.Errorf("Time = %v, want 0.25", got)
	}
	if got := Time(Round{}); got != 0 {
		t.Errorf("Time without cycles = %v, want 0, which is left out", got)
	}
}

func TestUsagePerCycle(t *testing.T) {
	if got := (Usage{EtcdProgram: 8 * time.Millisecond}).per(4)[EtcdProgram]; got != 2*time.Millisecond {
		t.Errorf("per cycle it is %s, want 2ms", got)
	}
}
