package main

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var hundred []int
	for value := 100; value > 0; value-- {
		hundred = append(hundred, value)
	}
	for name, test := range map[string]struct {
		values []int
		part   float64
		want   int
	}{
		"the median of an odd number":        {[]int{9, 1, 5}, 0.5, 5},
		"the p99 of a hundred values":        {hundred, 0.99, 99},
		"the p99 of fewer than a hundred":    {[]int{1, 2, 3}, 0.99, 3},
		"nothing, where there are no values": {nil, 0.5, 0},
	} {
		if got := quantile(test.values, test.part); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// resultOf returns a result with the rates of rounds.
func resultOf(rates ...float64) *result {
	made := &result{scenario: "distinct keys, 16", contender: "façade", requests: &requestCounts{writes: 2}}
	for _, rate := range rates {
		made.rounds = append(made.rounds, round{perSecond: rate, usage: map[string]time.Duration{etcdProgram: 3 * time.Millisecond}})
		made.total.latencies = append(made.total.latencies, 5*time.Millisecond)
	}
	return made
}

func TestARatioIsOfEachRound(t *testing.T) {
	// In the second round, the machine itself was slower by a factor of ten. The others lack one of both.
	got := ratio(rate, resultOf(90, 9, 900, 5, 0), resultOf(100, 10, 1000, 0, 5))
	if math.Abs(got.median-0.9) > 1e-9 || math.Abs(got.low-0.9) > 1e-9 || math.Abs(got.high-0.9) > 1e-9 || got.rounds != 3 {
		t.Errorf("the ratio is %+v, want 0.9 in three rounds", got)
	}
	if got := ratio(rate, resultOf(), resultOf()); !math.IsNaN(got.median) || got.rounds != 0 {
		t.Errorf("without rounds it is %+v", got)
	}
	if got := ratio(cycleTime, resultOf(5), resultOf(10)); got.median != 2 {
		t.Errorf("the ratio of times is %+v, want 2", got)
	}
}

func TestADisturbedRoundDoesNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		quiet, disturbed []float64
		want             spread
	}{
		"without any": {[]float64{4, 2, 3, 1}, nil, spread{2, 1, 3, 4, false}},
		"with one":    {[]float64{1, 2}, []float64{100}, spread{1, 1, 2, 2, false}},
		"if more than a third are disturbed, all count, and none judges": {[]float64{1}, []float64{100}, spread{1, 1, 100, 2, true}},
	} {
		of := resultOf(append(test.quiet, test.disturbed...)...)
		for i := range test.disturbed {
			of.rounds[len(test.quiet)+i].disturbance = "a compiler"
		}
		if got := each(rate, of); got != test.want {
			t.Errorf("%s: the spread is %+v, want %+v", name, got, test.want)
		}
	}
}
