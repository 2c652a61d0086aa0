package lock_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"forrst.dev/lock-operator/lock"
)

// TestMain has the tests draw the same jitter in each run with the same $SEED.
func TestMain(m *testing.M) {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "SEED:", err)
		os.Exit(2)
	}
	source, mu := rand.New(rand.NewPCG(seed, 0)), sync.Mutex{}
	lock.DrawFrom(func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	})
	goleak.VerifyTestMain(m)
}
