package engine_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// sources counts those of the tests.
var sources atomic.Uint64

// nextSource returns what an engine draws from: other numbers than the engines before it, and the same in each run with the
// same $SEED.
func nextSource(t *testing.T) func() float64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal("SEED: ", err)
	}
	return rand.New(rand.NewPCG(seed, sources.Add(1))).Float64
}
