package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// quantile returns the smallest value that the given part of all values does not exceed.
// Without values it is zero.
func quantile[T cmp.Ordered](values []T, part float64) T {
	if len(values) == 0 {
		return *new(T)
	}
	sorted := slices.Sorted(slices.Values(values))
	position := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(position, len(sorted)-1))]
}

func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }

// medianRatio divides round by round, which cancels a disturbance of a whole round.
func medianRatio(over, under []float64) float64 {
	var ratios []float64
	for round, each := range over {
		if round < len(under) && under[round] > 0 {
			ratios = append(ratios, each/under[round])
		}
	}
	return median(ratios)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
