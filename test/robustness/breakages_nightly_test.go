//go:build nightly

package robustness_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBreakages puts each bug into the product and checks that a run of half a minute, or the
// test that the breakage names, finds it. A run takes a minute per bug.
func TestBreakages(t *testing.T) {
	for _, name := range sortedKeys(breakages) {
		t.Run(name, func(t *testing.T) { breakages[name].mustBeFound(t) })
	}
}

// mustBeFound tries three runs, since chance decides whether one run hits the bug.
func (b breakage) mustBeFound(t *testing.T) {
	t.Helper()
	overlay := b.overlay(t)
	if b.test != (finder{}) {
		b.test.mustFind(t, overlay)
		return
	}
	for range 3 {
		result := run(t, options{
			length: lengthOf(t, 30*time.Second), seed: seedOf(t), allowance: skewAllowance, replicas: 2, lanes: 1,
			faults: b.faults, rest: b.rest, workload: b.workload, overlay: overlay, judgesLiveness: b.isLate,
		})
		for _, violation := range result.violations {
			check, _, _ := strings.Cut(violation, ":")
			if slices.Contains(b.found, check) {
				t.Logf("Found, with %d other violations: %s", len(result.violations)-1, violation)
				return
			}
		}
		t.Logf("Not found among %d operations: %q", result.tally.Operations, result.violations)
	}
	t.Error("the checker finds nothing")
}

// mustFind checks that the test passes, and that it fails with the overlay by the right assertion.
func (f finder) mustFind(t *testing.T, overlay string) {
	t.Helper()
	if output, err := f.run(t); err != nil {
		t.Fatalf("%s fails without the bug: %v\n%s", f.name, err, output)
	}
	output, err := f.run(t, "-overlay", overlay)
	if err == nil || !strings.Contains(output, "--- FAIL: "+f.name+" ") || !strings.Contains(output, f.says) {
		t.Fatalf("%s does not find the bug: %v\n%s", f.name, err, output)
	}
	t.Logf("Found by %s", f.name)
}

func (f finder) run(t *testing.T, flags ...string) (output string, err error) {
	t.Helper()
	arguments := append([]string{"test", "-count=1", "-timeout=5m", "-run=^" + f.name + "$"}, flags...)
	arguments = append(arguments, "./"+f.folder)
	if f.spec != "" {
		arguments = append(arguments, "-ginkgo.focus="+regexp.QuoteMeta(f.spec))
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir = moduleRoot(t)
	printed, err := command.CombinedOutput()
	return string(printed), err
}

// overlay writes the changed files and the file that lists them for "go build -overlay".
func (b breakage) overlay(t *testing.T) string {
	t.Helper()
	replace, dir := map[string]string{}, t.TempDir()
	for path, content := range b.changed(t) {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(changed, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = changed
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
