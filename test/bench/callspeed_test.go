package main

import (
	"math"
	"testing"
)

// A tenth of a second and then four tenths make two cycles per second.
func TestSerialRates(t *testing.T) {
	got := serialRates([]float64{10, 0}, []float64{2.5, 10, 1})
	if len(got) != 2 || math.Abs(got[0]-2) > 1e-9 || got[1] != 0 {
		t.Errorf("serialRates = %v, want 2 and 0", got)
	}
}
