//go:build nightly

package robustness_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// soakPart is how long clients work before what they saw is judged.
const soakPart = 150 * time.Second

// leaked bounds a replica at rest. What the caches of a cluster at rest need is far below.
var leaked = figures{Goroutines: 400, HeapBytes: 64 << 20, Files: 120}

// soaking keeps two processors busy.
var soaking = workload{clients: 160, keys: 120, waits: 0.4, longWaits: 0.1, hangUps: 0.1, longTTLs: 0.15, overslept: 0.1, renewals: 0.3, twice: 0.1, forced: 0.02, couples: 0.1}

// TestSoak runs parts until there were $OPERATIONS operations, and judges each, on one
// cluster. It adds the parts to the report in $REPORT, and fails at the end if a part had
// a violation. It takes hours.
func TestSoak(t *testing.T) {
	wanted, err := strconv.Atoi(os.Getenv("OPERATIONS"))
	if err != nil {
		t.Fatalf("OPERATIONS: %v", err)
	}
	dir := os.Getenv("REPORT")
	if dir == "" {
		t.Fatal("REPORT is not set")
	}
	report, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	options := options{
		length: lengthOf(t, soakPart), seed: seedOf(t), allowance: skewAllowance,
		replicas: 3, lanes: 3, isLong: true, leaked: leaked, judgesLiveness: true,
		faults: faultsOf(t), rest: aftermath + calm + time.Second, workload: soaking,
	}
	t.Setenv("ARTIFACTS", filepath.Join(dir, "artifacts"))
	cluster, artifacts := start(t, options)
	for done := 0; done < wanted; options.seed++ {
		part, err := cluster.part(t, options, artifacts)
		if err != nil {
			t.Fatal(err)
		}
		part.Violations = append(part.Violations, part.leaks()...)
		if err := report.add(dir, part); err != nil {
			t.Fatal(err)
		}
		done += part.Operations
		t.Logf("%d of %d operations, SEED=%d, %.0f per second, %d violations", done, wanted, options.seed,
			float64(part.Operations)/part.Seconds, len(part.Violations))
		for _, violation := range part.Violations {
			t.Error(violation)
		}
	}
	t.Logf("The report in %s\n%s", dir, report.Total.markdown())
}

// leaks compares the replicas at rest with the bounds.
func (p part) leaks() (violations []string) {
	for _, each := range []struct {
		what        string
		found, most int64
	}{
		{"goroutines", p.Rest.Goroutines, leaked.Goroutines},
		{"bytes of heap", p.Rest.HeapBytes, leaked.HeapBytes},
		{"open files", p.Rest.Files, leaked.Files},
	} {
		if each.found > each.most {
			violations = append(violations, fmt.Sprintf("leaks: a replica at rest has %d %s, more than %d", each.found, each.what, each.most))
		}
	}
	return violations
}
