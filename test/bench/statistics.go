package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// quantile returns the smallest value that the given part of all values does not exceed. Without values it is zero.
func quantile[T cmp.Ordered](values []T, part float64) T {
	if len(values) == 0 {
		return *new(T)
	}
	position := int(math.Ceil(part*float64(len(values)))) - 1
	return slices.Sorted(slices.Values(values))[max(0, position)]
}

// milliseconds returns the duration as a number of milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spread is a number that was measured in each of some rounds.
type spread struct {
	// median, low and high are the median and the quartiles of the rounds. NaN if nothing was measured.
	median, low, high float64
	// rounds is how many rounds the three are of.
	rounds int
	// isBusy says that more than a third of the rounds were disturbed: the numbers are of all rounds, and no verdict may
	// depend on them. Otherwise they are of the quiet rounds alone.
	isBusy bool
}

// single returns a number that was measured once, under a disturbance or none.
func single(value float64, disturbance string) spread { return samples([]float64{value}, disturbance) }

// samples returns the spread of numbers that were measured together, under a disturbance or none.
func samples(values []float64, disturbance string) spread {
	var rounds []round
	for range values {
		rounds = append(rounds, round{disturbance: disturbance})
	}
	return spreadOf(values, rounds)
}

// spreadOf returns the spread of the values of the rounds without those that are no number.
func spreadOf(values []float64, rounds []round) spread {
	var all, quiet []float64
	for i, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		all = append(all, value)
		if rounds[i].disturbance == "" {
			quiet = append(quiet, value)
		}
	}
	if len(all) == 0 {
		return spread{median: math.NaN(), low: math.NaN(), high: math.NaN()}
	}
	used, isBusy := quiet, 3*len(quiet) < 2*len(all)
	if isBusy {
		used = all
	}
	return spread{quantile(used, 0.5), quantile(used, 0.25), quantile(used, 0.75), len(used), isBusy}
}

// each returns the spread of a number of each round.
func each(value func(round) float64, of *result) spread {
	values := make([]float64, len(of.rounds))
	for i, round := range of.rounds {
		values[i] = value(round)
	}
	return spreadOf(values, of.rounds)
}

// ratio divides round by round, which cancels a disturbance that slows down all contenders of a round alike. Both results are
// of one comparison. A round that has the number of one of them only does not count.
func ratio(value func(round) float64, over, under *result) spread {
	values := make([]float64, len(over.rounds))
	for i := range values {
		values[i] = math.NaN()
		if over, under := value(over.rounds[i]), value(under.rounds[i]); over > 0 && under > 0 {
			values[i] = over / under
		}
	}
	return spreadOf(values, over.rounds)
}
