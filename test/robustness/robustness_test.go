// Package robustness_test breaks the servers, connections and clocks below the lock
// service while clients use it. Then it looks for an order of the clients' calls in which
// every lock behaved as a lock. See README.md.
package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func init() {
	ctrl.SetLogger(logr.Discard()) // The logs of the clients in this process are of no interest.
}

// options of a run.
type options struct {
	// length is how long the clients work.
	length    time.Duration
	seed      uint64
	allowance time.Duration
	faults    []fault
	// rest is the calm time after each round of faults. It shows whether abandoned grants
	// are ended only if it is longer than calm; the end of a run always shows it.
	rest     time.Duration
	workload workload
	// overlay changes the product's code, see breakages_test.go.
	overlay string
}

// result of a run.
type result struct {
	violations []string
	operations int
	artifacts  string
}

func TestRobustness(t *testing.T) {
	outcome := run(t, options{
		length: lengthOf(t, 30*time.Second), seed: seedOf(t), allowance: time.Second,
		faults: faultsOf(t), rest: aftermath + calm + time.Second, workload: ordinary,
	})
	for _, violation := range outcome.violations {
		t.Error(violation)
	}
	if t.Failed() {
		t.Logf("Logs and pictures are in %s", outcome.artifacts)
		return
	}
	if err := os.RemoveAll(outcome.artifacts); err != nil {
		t.Error(err)
	}
}

// lengthOf returns $DURATION, or otherwise if it is unset.
func lengthOf(tb testing.TB, otherwise time.Duration) time.Duration {
	tb.Helper()
	text := os.Getenv("DURATION")
	if text == "" {
		return otherwise
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatalf("DURATION: %v", err)
	}
	return length
}

// faultsOf returns the faults of $FAULTS, which lists names or parts of names separated by
// commas, or all faults.
func faultsOf(tb testing.TB) []fault {
	tb.Helper()
	wanted := os.Getenv("FAULTS")
	if wanted == "" {
		return allFaults
	}
	chosen := slices.DeleteFunc(slices.Clone(allFaults), func(fault fault) bool {
		return !slices.ContainsFunc(strings.Split(wanted, ","), func(part string) bool { return strings.Contains(fault.name, part) })
	})
	if len(chosen) == 0 {
		tb.Fatalf("FAULTS: %q names no fault", wanted)
	}
	return chosen
}

// seedOf returns $SEED, or a random seed.
func seedOf(tb testing.TB) uint64 {
	tb.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		return rand.Uint64N(1 << 32) //nolint:gosec // the seed is no secret
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("SEED: %v", err)
	}
	return seed
}

// run starts a cluster, lets clients work on it while faults are injected, and judges.
func run(t *testing.T, options options) result {
	t.Helper()
	t.Logf("SEED=%d makes the same choices again", options.seed)
	artifacts, err := artifactsDir("robustness")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build(t.Context(), t.TempDir(), options.overlay)
	if err != nil {
		t.Fatal(err)
	}
	history := &history{start: time.Now()}
	cluster, err := startCluster(t.Context(), binary, artifacts, options, history)
	t.Cleanup(func() {
		if err := cluster.stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	violations, err := cluster.exercise(t, options)
	if err != nil {
		t.Fatal(err)
	}
	judged, err := cluster.judge(t.Context(), options, artifacts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations", len(history.operations))
	return result{append(violations, judged...), len(history.operations), artifacts}
}

// exercise returns the violations of [cluster.checkLive].
func (c *cluster) exercise(t *testing.T, options options) (violations []string, err error) {
	t.Helper()
	if err := c.awaitReady(t.Context()); err != nil {
		return nil, err
	}
	working, stopWork := context.WithTimeout(t.Context(), options.length)
	defer stopWork()
	// The end is calm, which exposes abandoned grants.
	breaking, stopBreaking := context.WithTimeout(working, options.length-aftermath-calm)
	defer stopBreaking()

	var workers sync.WaitGroup
	for number := range options.workload.clients {
		worker := &worker{
			caller: newCaller(number, c.addresses(), c.history), load: options.workload,
			random: rand.New(rand.NewPCG(options.seed, uint64(number))), //nolint:gosec // a test that can be repeated
		}
		workers.Go(func() { worker.run(working) })
	}
	chance := rand.New(rand.NewPCG(options.seed, 1000)) //nolint:gosec // as above
	err = c.injectFaults(breaking, options.faults, options.rest, chance, t.Logf)
	if err != nil {
		stopWork()
	}
	workers.Wait()
	if err != nil {
		return nil, err
	}
	if options.overlay != "" {
		return nil, nil // A replica with a bug need not recover.
	}
	return c.checkLive(t.Context()), nil
}

// judge returns the violations in the record of the run.
func (c *cluster) judge(ctx context.Context, options options, artifacts string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	writes, err := c.journal.finish(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	grants, problems := grantsOf(writes)
	record := newRecord(c.history, grants, options.allowance)
	return append(problems, record.check(model{allowance: options.allowance, skew: options.allowance}, artifacts)...), nil
}
