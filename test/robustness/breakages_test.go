package robustness_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/test/support/testenv"
)

// breakage is a bug in the product's code that a run must find. "go build -overlay" puts
// it into the replica; no file of the tree changes.
type breakage struct {
	edits []edit
	// faults and workload expose the bug; found are the checks that may find it.
	faults   []fault
	workload workload
	// rest is the calm time after each round of faults.
	rest  time.Duration
	found []string
}

// edit replaces a piece of code that must occur exactly once.
type edit struct{ file, old, new string }

// hot lets many clients contend for few keys whose locks mostly expire.
var hot = workload{clients: 12, keys: 3, overslept: 0.7, renewals: 0.3}

// coupled passes locks from replica to replica.
var coupled = workload{clients: 12, keys: 12, waits: 0.4, longWaits: 0.2, overslept: 0.1, couples: 0.7}

// waiting lets most clients wait, and many of them hang up.
var waiting = workload{clients: 12, keys: 3, waits: 0.8, hangUps: 0.4, longTTLs: 0.1}

var breakages = map[string]breakage{
	"a take-over that reads again and does not judge again": {
		edits: []edit{{"lock/engine/acquire.go",
			"	lock, err := a.objects.Update(ctx, desired, metav1.UpdateOptions{})\n",
			`	if current, err := get(ctx, a.objects, desired.Name); err == nil && current != nil {
		desired.UID, desired.ResourceVersion = current.UID, current.ResourceVersion
	}
	lock, err := a.objects.Update(ctx, desired, metav1.UpdateOptions{})
`}},
		faults: []fault{delayRequests}, workload: hot, found: []string{"exclusion", "order"},
	},
	"a take-over of a lock that has not expired": {
		edits: []edit{{"lock/rules/expiry.go",
			"UntilReclaimable(lock, now, allowance) > 0",
			"UntilReclaimable(lock, now, allowance) > allowance+300*time.Millisecond"}},
		workload: hot, found: []string{"exclusion", "order"},
	},
	"a release that deletes the lock of any holder": {
		edits: []edit{{"lock/engine/release.go",
			"		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},\n",
			"		Preconditions:     &metav1.Preconditions{},\n"}},
		faults: []fault{delayRequests}, workload: workload{clients: 24, keys: 8, overslept: 0.2},
		found: []string{"exclusion", "order"},
	},
	"a hand-off that replaces a holder that came in between": {
		edits: []edit{{"lock/engine/handoff.go",
			"	sent := e.sentGrant(desired)\n",
			`	if current, err := get(ctx, objects, desired.Name); err == nil && current != nil {
		desired.UID, desired.ResourceVersion = current.UID, current.ResourceVersion
	}
	sent := e.sentGrant(desired)
`}},
		faults: []fault{delayRequests, loseReplies}, workload: workload{clients: 12, keys: 3, waits: 0.6, forced: 0.15, overslept: 0.2},
		found: []string{"exclusion", "order"},
	},
	"a grant to a waiter whose caller has gone": {
		edits: []edit{
			{"lock/engine/queue.go", "	queue.waiters.Remove(gone.element)\n	close(gone.left)\n", "	close(gone.left)\n"},
			{"lock/engine/waiter.go", "		return false\n", "		return true\n"},
		},
		workload: waiting, found: []string{"abandoned"},
	},
	"an unanswered write that counts as a success": {
		edits: []edit{{"lock/engine/acquire.go",
			"			a.trackUnanswered(a.sent(desired))\n			a.current, err = a.resolve(ctx, desired.Name, &backoff, err)\n",
			"			_ = backoff\n			return a.granted(desired)\n"}},
		faults: []fault{loseReplies}, workload: ordinary, found: []string{"grants"},
	},
	"an unanswered write that is not followed up": {
		edits:  []edit{{"lock/engine/acquire.go", "		a.engine.orphans.add(unanswered)\n", "		_ = unanswered\n"}},
		faults: []fault{writeLate}, rest: time.Minute, workload: workload{clients: 60, keys: 120, longTTLs: 1},
		found: []string{"abandoned"},
	},
	"a renewal of a lock that has expired": {
		edits: []edit{{"lock/rules/transitions.go",
			"	if err := Release(current, proof, now); err != nil {\n		return nil, err\n	}\n	next := current.DeepCopy()\n",
			`	if current == nil {
		return nil, ErrNotHeld
	}
	if current.Spec.Owner != proof.Owner {
		return nil, ErrOwnerMismatch
	}
	next := current.DeepCopy()
`}},
		workload: hot, found: []string{"renewals", "order"},
	},
	"a clock that is not corrected": {
		edits:  []edit{{"test/robustness/replica/manager.go", "	return corrected\n", "	return local\n"}},
		faults: []fault{stepForward, stepBack}, workload: hot, found: []string{"exclusion", "order"},
	},
	"a watch that is trusted whatever it shows": {
		edits:  []edit{{"lock/engine/trust.go", "		isTrusted := left > 0\n", "		isTrusted := left > 0 || t.stream != nil\n"}},
		faults: []fault{stallWatch}, workload: coupled, found: []string{"wanted", "timeouts"},
	},
	"a lost change that the sum of the locks does not show": {
		edits:  []edit{{"lock/engine/trust.go", "t.stream.hasLost(heartbeat.Lock)\n", "t.stream.hasLost(heartbeat.Lock) && t.maxSilence < 0\n"}},
		faults: []fault{loseDeletes}, workload: coupled, found: []string{"wanted", "timeouts"},
	},
	"a grant stamped by a wrong clock that is kept": {
		edits: []edit{{"lock/engine/skew.go",
			"	return !e.isAdmitted && servertime.WasBehind(e.clock, stamped).Abs() > limit\n", "	return limit < 0\n"}},
		faults: []fault{stepLittle}, workload: workload{clients: 24, keys: 48, longTTLs: 1}, found: []string{"grants", "exclusion", "order"},
	},
	"a grant that lapsed and is told as a mistake of the caller": {
		edits: []edit{{"lock/engine/handoff.go",
			"			e.queues.recordLapsed(queue, recipient, granted, now)\n",
			"			e.queues.remove(queue, recipient)\n			recipient.deliver(outcome{err: lock.ErrInvalid})\n"}},
		faults: []fault{freezeEtcd}, workload: workload{clients: 24, keys: 4, waits: 1, longWaits: 1}, found: []string{"answers"},
	},
	"a refusal that is told as an outage": {
		edits:  []edit{{"lock/engine/refused.go", "	case isRefused:\n", "	case isRefused && refused == (refusal{}):\n"}},
		faults: []fault{quota, terminating}, workload: ordinary, found: []string{"answers"},
	},
	"a delete that a proxy has repeated and that counts as another's": {
		edits: []edit{{"lock/engine/release.go",
			"			// proxy on the way may have repeated it.\n			unanswered = current.UID\n", "			// proxy on the way may have repeated it.\n"}},
		faults: []fault{repeatDeletes}, workload: ordinary, found: []string{"order"},
	},
}

// TestBreakages puts each bug into the product and checks that a run of half a minute
// finds it. It takes a minute per bug and runs only with "make robustness-breakages".
func TestBreakages(t *testing.T) {
	if os.Getenv("BREAKAGES") == "" {
		t.Skip("it takes a minute per bug: make robustness-breakages")
	}
	for _, name := range sortedKeys(breakages) {
		t.Run(name, func(t *testing.T) { breakages[name].mustBeFound(t) })
	}
}

// mustBeFound tries three runs, since chance decides whether one run hits the bug.
func (b breakage) mustBeFound(t *testing.T) {
	t.Helper()
	overlay := b.overlay(t)
	for range 3 {
		result := run(t, options{
			length: lengthOf(t, 30*time.Second), seed: seedOf(t), allowance: time.Second, replicas: 2, lanes: 1,
			faults: b.faults, rest: b.rest, workload: b.workload, overlay: overlay,
		})
		if err := os.RemoveAll(result.artifacts); err != nil {
			t.Error(err)
		}
		for _, violation := range result.violations {
			check, _, _ := strings.Cut(violation, ":")
			if slices.Contains(b.found, check) {
				t.Logf("Found, with %d other violations: %s", len(result.violations)-1, violation)
				return
			}
		}
		t.Logf("Not found among %d operations: %q", result.operations, result.violations)
	}
	t.Error("the checker finds nothing")
}

// overlay writes the changed files and the file that lists them for "go build -overlay".
func (b breakage) overlay(t *testing.T) string {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	replace, dir := map[string]string{}, t.TempDir()
	for number, edit := range b.edits {
		path := filepath.Join(root, edit.file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if count := strings.Count(string(content), edit.old); count != 1 {
			t.Fatalf("%s has %d of the following, not one; adjust the breakage:\n%s", edit.file, count, edit.old)
		}
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", number))
		if err := os.WriteFile(changed, []byte(strings.Replace(string(content), edit.old, edit.new, 1)), 0o600); err != nil {
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

// TestBreakagesApply is quick, and fails when a change of the product makes a breakage
// inapplicable.
func TestBreakagesApply(t *testing.T) {
	for name, breakage := range breakages {
		t.Run(name, func(t *testing.T) { breakage.overlay(t) })
	}
}
