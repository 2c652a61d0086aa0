package main

import (
	"math"
	"testing"
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
			if got := quantile(test.values, test.part); got != test.want {
				t.Errorf("quantile(%v, %v) = %v, want %v", test.values, test.part, got, test.want)
			}
		})
	}
}

func TestMedianRatioDividesRoundByRound(t *testing.T) {
	// In the second round, the machine itself was slower by a factor of ten.
	over, under := []float64{90, 9, 900}, []float64{100, 10, 1000}
	if got := medianRatio(over, under); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("medianRatio(%v, %v) = %v, want 0.9", over, under, got)
	}
}

func TestMedianRatioLeavesOutRoundsWithoutAnything(t *testing.T) {
	if got := medianRatio([]float64{5, 5}, []float64{0, 10}); got != 0.5 {
		t.Errorf("got %v, want 0.5", got)
	}
}
