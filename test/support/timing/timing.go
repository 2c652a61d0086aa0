// Package timing judges how fast something is: as a ratio to a floor that the same run measures on the same machine. Its users
// are the tests with the build tag "timing", which "make timing" runs alone on the machine and without the race detector.
package timing

import (
	"fmt"
	"slices"
	"time"
)

// Comparison holds what was measured and its floor, in turns, so that whatever slows the machine slows both.
type Comparison struct{ Measured, Floor []time.Duration }

// Compare calls both functions in turns, rounds times each, and times them. It ends at the first error.
func Compare(rounds int, measured, floor func() error) (Comparison, error) {
	var compared Comparison
	for range rounds {
		for _, each := range []struct {
			call  func() error
			times *[]time.Duration
		}{{measured, &compared.Measured}, {floor, &compared.Floor}} {
			began := time.Now()
			if err := each.call(); err != nil {
				return compared, err
			}
			*each.times = append(*each.times, time.Since(began))
		}
	}
	return compared, nil
}

// Ratio returns how many times as long as the floor the measured took, at a quantile such as 0.5.
func (c Comparison) Ratio(quantile float64) float64 {
	return float64(Quantile(c.Measured, quantile)) / float64(Quantile(c.Floor, quantile))
}

// String shows both medians and 99th percentiles, for the report of a run.
func (c Comparison) String() string {
	return fmt.Sprintf("p50 %s (floor %s), p99 %s (floor %s)",
		Quantile(c.Measured, 0.5), Quantile(c.Floor, 0.5), Quantile(c.Measured, 0.99), Quantile(c.Floor, 0.99))
}

// Quantile returns the duration that the given share of the durations does not exceed, and 0 without any.
func Quantile(durations []time.Duration, share float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[int(share*float64(len(sorted)-1))]
}
