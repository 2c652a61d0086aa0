package measure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest value that the given part of all values does not exceed.
// Without values it is zero.
func Quantile[T cmp.Ordered](values []T, part float64) T {
	if len(values) == 0 {
		return *new(T)
	}
	sorted := slices.Sorted(slices.Values(values))
	position := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(position, len(sorted)-1))]
}

// Median returns the middle one of the values, the lower of two.
func Median[T cmp.Ordered](values []T) T { return Quantile(values, 0.5) }

// Milliseconds returns the duration as a number of milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// leastQuiet is the part of all rounds that must be quiet for a verdict.
const leastQuiet = 2.0 / 3

// Spread is a number that was measured once per round.
type Spread struct {
	// Median, Low and High are the median and the quartiles of the rounds. NaN if nothing was measured; Low and High
	// also if it is one number of all rounds together.
	Median, Low, High float64
	// Rounds is how many rounds the three are of.
	Rounds int
	// Disturbed is how many rounds were disturbed, and Disturbance says how one of them was.
	Disturbed   int
	Disturbance string
	// IsBusy says that too many rounds were disturbed: the numbers are of all rounds, and no verdict may depend on
	// them. Otherwise they are of the quiet rounds alone.
	IsBusy bool
}

// sample is a number that was measured in a round.
type sample struct {
	value float64
	// disturbance says how the round was disturbed. Empty if it was not.
	disturbance string
}

func spreadOf(samples []sample) Spread {
	var all, quiet []float64
	result := Spread{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	for _, each := range samples {
		all = append(all, each.value)
		if each.disturbance == "" {
			quiet = append(quiet, each.value)
			continue
		}
		result.Disturbed++
		result.Disturbance = each.disturbance
	}
	if len(all) == 0 {
		return result
	}
	result.IsBusy = float64(len(quiet)) < leastQuiet*float64(len(all))
	used := quiet
	if result.IsBusy {
		used = all
	}
	result.Median, result.Low, result.High = Median(used), Quantile(used, 0.25), Quantile(used, 0.75)
	result.Rounds = len(used)
	return result
}

// Single returns a number that was measured once, in the window.
func Single(value float64, window Window) Spread {
	return spreadOf([]sample{{value, window.Disturbance()}})
}

// Samples returns the spread of numbers that were measured in one window.
func Samples(values []float64, window Window) Spread {
	var samples []sample
	for _, value := range values {
		samples = append(samples, sample{value, window.Disturbance()})
	}
	return spreadOf(samples)
}

// Each returns the spread of a number of each round.
func Each(of *Result, value func(Round) float64) Spread {
	var samples []sample
	for _, round := range of.Rounds {
		samples = append(samples, sample{value(round), round.Disturbance})
	}
	return spreadOf(samples)
}

// Ratio divides round by round, which cancels a disturbance that slows down all contenders of a round alike. It leaves
// out rounds in which one of both was not measured.
func Ratio(over, under *Result, value func(Round) float64) Spread {
	return RatioToSum(value, over, under)
}

// RatioToSum divides by the sum of several results, round by round.
func RatioToSum(value func(Round) float64, over *Result, under ...*Result) Spread {
	sums, counts := map[int]float64{}, map[int]int{}
	for _, each := range under {
		for _, round := range each.Rounds {
			if got := value(round); got > 0 {
				sums[round.Number] += got
				counts[round.Number]++
			}
		}
	}
	var samples []sample
	for _, round := range over.Rounds {
		if counts[round.Number] == len(under) {
			samples = append(samples, sample{value(round) / sums[round.Number], round.Disturbance})
		}
	}
	return spreadOf(samples)
}

// RatioOfQuantiles divides a quantile of the acquires of two results that were not measured in turns, of the rounds that
// count together: a single round has too few acquires for a p99.
func RatioOfQuantiles(over, under *Result, part float64) Spread {
	ratio := float64(pooled(over, part)) / float64(pooled(under, part))
	same := func(Round) float64 { return ratio }
	result, divisor := Each(over, same), Each(under, same)
	result.Low, result.High = math.NaN(), math.NaN() // It is one number of all rounds.
	if divisor.IsBusy {
		result.IsBusy, result.Disturbance = true, divisor.Disturbance
	}
	return result
}

// pooled returns a quantile of the acquires of the rounds that [Each] uses.
func pooled(of *Result, part float64) time.Duration {
	isBusy := Each(of, Rate).IsBusy
	var acquires []time.Duration
	for _, round := range of.Rounds {
		if isBusy || round.Disturbance == "" {
			acquires = append(acquires, round.Acquires...)
		}
	}
	return Quantile(acquires, part)
}

// RatioOfMedians divides the medians of two results whose rounds were not measured in turns. The quartiles are those
// of the rounds of over, each divided by the median of under.
func RatioOfMedians(over, under *Result, value func(Round) float64) Spread {
	divisor := Each(under, value)
	var samples []sample
	for _, round := range over.Rounds {
		samples = append(samples, sample{value(round) / divisor.Median, round.Disturbance})
	}
	result := spreadOf(samples)
	if divisor.IsBusy {
		result.IsBusy, result.Disturbance = true, divisor.Disturbance
	}
	return result
}
