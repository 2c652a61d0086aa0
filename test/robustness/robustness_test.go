// Package robustness_test breaks the servers, connections and clocks below the lock
// service while clients use it. Then it looks for an order of the clients' calls in which
// every lock behaved as a lock. See README.md.
package robustness_test

import (
	"cmp"
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

	"forrst.dev/lock-operator/lock/engine"
)

// skewAllowance is that of the replicas.
const skewAllowance = engine.DefaultClockSkewAllowance

func init() {
	ctrl.SetLogger(logr.Discard()) // The logs of the clients in this process are of no interest.
}

// options of a run.
type options struct {
	// length is how long the clients work, while faults are injected in random order, again and again. Zero injects each once,
	// in the order in which they are listed, and the clients work as long as that takes.
	length    time.Duration
	seed      uint64
	allowance time.Duration
	faults    []fault
	// replicas is how many there are.
	replicas int
	// lanes is how many faults overlap. isLong allows for faults of minutes.
	lanes  int
	isLong bool
	// leaked bounds what replicas have at rest, which they come to before a part of a soak is judged. Zero does not wait for that.
	leaked figures
	// rest is the calm time after each round of faults. It shows whether abandoned grants
	// are ended only if it is longer than calm; the end of a run always shows it.
	rest     time.Duration
	workload workload
	// isShared has the replicas share their lines.
	isShared bool
	// judgesLiveness also judges what did not happen in time, which a machine may be too busy for.
	judgesLiveness bool
	// overlay changes the product's code, see breakages_test.go.
	overlay string
}

// result of a run.
type result struct {
	violations []string
	tally      Tally
}

// eachKind has at least one fault of what each is about: processes, machines, clocks, networks, requests, answers, watches, API
// servers, etcd, holders, and the lines that replicas share.
var eachKind = []fault{
	killReplica, stopReplica, stepForward, stepBack, suspendHolder, partition, loseReplies, repeatUpdates, cutWatch, stallWatch, loseDeletes,
	partitionPeers, freezeEtcd, killAPIServer,
}

// TestRobustness is short, and judges safety alone. The replicas share their lines. No lock has a long ttl, so that what is left
// behind ends soon.
func TestRobustness(t *testing.T) {
	load := ordinary
	load.longTTLs = 0
	outcome := run(t, options{
		seed: seedOf(t), allowance: skewAllowance, replicas: 3, lanes: 1, isShared: true, faults: eachKind, workload: load,
	})
	for _, wanted := range eachKind {
		if got := outcome.tally.Faults[wanted.name].Count; got != 1 {
			t.Errorf("%q was injected %d times", wanted.name, got)
		}
	}
	// A busy machine makes fewer grants, and a run without any shows nothing. An idle one makes more than a thousand.
	if least := 100; outcome.tally.Grants < least {
		t.Errorf("%d grants, want at least %d", outcome.tally.Grants, least)
	}
	outcome.mustBeClean(t)
}

// mustBeClean fails for each violation.
func (r result) mustBeClean(t *testing.T) {
	t.Helper()
	for _, violation := range r.violations {
		t.Error(violation)
	}
}

// faultsOf returns the faults of $FAULTS, which lists names or parts of names separated by
// commas, or all faults and the others.
func faultsOf(tb testing.TB, others ...fault) []fault {
	tb.Helper()
	wanted := os.Getenv("FAULTS")
	all := slices.Concat(allFaults, others)
	if wanted == "" {
		return all
	}
	chosen := slices.DeleteFunc(all, func(fault fault) bool {
		return !slices.ContainsFunc(strings.Split(wanted, ","), func(part string) bool { return strings.Contains(fault.name, part) })
	})
	if len(chosen) == 0 {
		tb.Fatalf("FAULTS: %q names no fault", wanted)
	}
	return chosen
}

// seedOf returns $SEED, or 1.
func seedOf(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		tb.Fatalf("SEED: %v", err)
	}
	return seed
}

// run starts a cluster, lets clients work on it while faults are injected, and judges.
func run(t *testing.T, options options) result {
	t.Helper()
	t.Logf("SEED=%d makes the same choices again", options.seed)
	cluster, artifacts := start(t, options)
	part, err := cluster.part(t, options, artifacts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", part.Tally.markdown())
	return result{part.Violations, part.Tally}
}

// start returns a cluster that ends with the test, and the folder of its logs, which stays if the test fails.
func start(t *testing.T, options options) (*cluster, string) {
	t.Helper()
	artifacts, err := artifactsDir("robustness")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Logs and pictures are in %s", artifacts)
		} else if err := os.RemoveAll(artifacts); err != nil {
			t.Error(err)
		}
	})
	binary, err := build(t.Context(), t.TempDir(), options.overlay)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := startCluster(t.Context(), binary, artifacts, options)
	t.Cleanup(func() {
		if err := cluster.stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.awaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cluster, artifacts
}

// part lets clients work, injects faults, and judges. A cluster may have several parts one
// after the other.
func (c *cluster) part(t *testing.T, options options, artifacts string) (part, error) {
	t.Helper()
	c.history = &history{start: time.Now()}
	for _, replica := range c.replicas {
		replica.path.reset()
	}
	var err error
	c.journal, err = startJournal(t.Context(), c.environment.EtcdURL(), c.history)
	if err != nil {
		return part{}, err
	}
	violations, err := c.exercise(t, options)
	if err != nil {
		return part{}, err
	}
	worked := c.history.now()
	if options.leaked != (figures{}) {
		c.awaitRest(t.Context(), options.leaked)
	}
	record, problems, err := c.record(t.Context(), options)
	if err != nil {
		return part{}, err
	}
	violations = append(append(violations, problems...), record.check(model{allowance: options.allowance, skew: options.allowance}, artifacts)...)
	t.Logf("Worked for %s, judged for %s", worked.Round(time.Second), (c.history.now() - worked).Round(time.Second))
	return newPart(options.seed, record, c.replicas, violations), nil
}

// exercise returns the violations of [cluster.checkLive].
func (c *cluster) exercise(t *testing.T, options options) (violations []string, err error) {
	t.Helper()
	working, stopWork := context.WithCancel(t.Context())
	defer stopWork()
	end := aftermath
	if options.judgesLiveness { // A calm end exposes abandoned grants.
		end += calm
	}
	breaking, stopBreaking := context.WithCancel(working)
	if options.length > 0 {
		breaking, stopBreaking = context.WithTimeout(working, options.length-end)
	}
	defer stopBreaking()
	var workers sync.WaitGroup
	running := &running{}
	for number := range options.workload.clients {
		worker := &worker{
			caller: newCaller(number, c.addresses(), c.history, running), load: options.workload,
			random: rand.New(rand.NewPCG(options.seed, uint64(number))),
		}
		if number%2 == 1 {
			worker.caller, worker.thief = c.authenticated(number, running)
		}
		workers.Go(func() { worker.run(working) })
	}
	c.runPrograms(working, options.seed, &workers)
	c.runKeepers(working, options.seed, &workers)
	c.runJobbers(working, options.seed, &workers)
	if options.length > 0 {
		err = c.injectFaults(breaking, options, t.Logf)
	} else {
		err = c.injectOnce(breaking, options, t.Logf)
		stopBreaking()
	}
	if err == nil {
		<-breaking.Done()
		pause(working, end)
	}
	stopWork()
	workers.Wait()
	t.Logf("The clients were done after %s", c.history.now().Round(time.Second))
	if err != nil {
		return nil, err
	}
	if options.overlay != "" {
		return nil, nil // A replica with a bug need not recover.
	}
	return c.checkLive(t.Context(), options), nil
}

// record returns the record of a part, and the violations that etcd's own record shows.
func (c *cluster) record(ctx context.Context, options options) (*record, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	writes, err := c.journal.finish(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal: %w", err)
	}
	grants, problems := grantsOf(writes)
	var passages []passage
	for _, replica := range c.replicas {
		passages = append(passages, replica.path.passage(c.history.start))
	}
	made := newRecord(c.history, grants, passages, options.allowance)
	made.isShared, made.judgesLiveness = options.isShared, options.judgesLiveness
	for _, replica := range c.replicas {
		made.audited = append(made.audited, replica.path.records()...)
	}
	return made, problems, nil
}
