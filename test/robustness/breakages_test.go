package robustness_test

import (
	"go/ast"
	gobuild "go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/test/support/testenv"
)

// breakage is a bug in the product's code that a run must find, or a test of another package.
// "go build -overlay" puts it into the replica, and "go test -overlay" into the code under that
// test; no file of the tree changes.
type breakage struct {
	edits []edit
	// faults and workload expose the bug; found are the checks that may find it.
	faults   []fault
	workload workload
	// rest is the calm time after each round of faults.
	rest  time.Duration
	found []string
	// isLate says that something then does not happen in time, which only a run that judges liveness finds.
	isLate bool
	// test finds the bug instead of a run that cannot meet it, or seldom does; unset for all others.
	test finder
}

// finder is a test that fails with a bug and passes without.
type finder struct {
	// folder is that of its package, and name that of its function.
	folder, name string
	// spec is the text of the Ginkgo specs to run; empty in a package without Ginkgo.
	spec string
	// says is what the assertion prints that fails. A test that does not compile, or runs out of
	// time, finds nothing.
	says string
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
			"	sent := grant{grantAudit: grantAudit{event: audit.HandedOn, former: &held}}\n",
			`	if current, err := get(ctx, objects, desired.Name); err == nil && current != nil {
		desired.UID, desired.ResourceVersion = current.UID, current.ResourceVersion
	}
	sent := grant{grantAudit: grantAudit{event: audit.HandedOn, former: &held}}
`}},
		faults: []fault{delayRequests, loseReplies}, workload: workload{clients: 12, keys: 3, waits: 0.6, forced: 0.15, overslept: 0.2},
		found: []string{"exclusion", "order"},
	},
	"a grant to a waiter whose caller has gone": {
		edits: []edit{
			{"lock/engine/queue.go", "	q.waiters.Remove(gone.element)\n	q.count(gone, -1)\n", "	q.count(gone, -1)\n"},
			{"lock/engine/waiter.go", "		return false\n", "		return true\n"},
		},
		workload: waiting, found: []string{"abandoned"}, isLate: true,
	},
	"an unanswered write that counts as a success": {
		edits: []edit{{"lock/engine/acquire.go",
			"			a.trackUnanswered(a.sent(desired))\n			a.current, err = a.resolve(ctx, desired.Name, &backoff, err)\n",
			"			_ = backoff\n			return a.granted(desired), nil\n"}},
		faults: []fault{loseReplies}, workload: ordinary, found: []string{"grants"},
	},
	"an unanswered write that is not followed up": {
		edits:  []edit{{"lock/engine/acquire.go", "		a.engine.orphans.add(unanswered)\n", "		_ = unanswered\n"}},
		faults: []fault{writeLate}, rest: time.Minute, workload: workload{clients: 60, keys: 120, longTTLs: 1},
		found: []string{"abandoned"}, isLate: true,
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
	"a lock that is not read again while a watch is open": {
		edits:  []edit{{"lock/engine/recheck.go", "	recheckAfter = 5 * time.Second\n", "	recheckAfter = time.Hour\n"}},
		faults: []fault{loseDeletes}, workload: coupled, found: []string{"wanted", "timeouts"}, isLate: true,
	},
	"a read that is put off by what a late watch shows": {
		edits: []edit{{"lock/engine/recheck.go", "	q.rechecks.provenAt = now\n", "	q.rechecks.provenAt, q.rechecks.at = now, now\n"}},
		test:  finder{folder: "lock/engine", name: "TestAWaiterIsServedAfterAReleaseThatItsWatchDoesNotShow", says: "served after"},
	},
	"a closed watch that counts as open": {
		edits:  []edit{{"lock/engine/watch_state.go", "		if isClosed := left <= 0; isClosed != wasClosed {\n", "		if isClosed := left <= 0 && wasClosed; isClosed != wasClosed {\n"}},
		faults: []fault{cutWatch}, workload: coupled, found: []string{"wanted", "timeouts"}, isLate: true,
	},
	"a grant stamped by a wrong clock that is kept": {
		edits: []edit{{"lock/engine/skew.go",
			"servertime.MaxError(e.clock, stamped) > e.allowance\n", "servertime.MaxError(e.clock, stamped) < 0\n"}},
		faults: []fault{stepLittle}, workload: workload{clients: 24, keys: 48, longTTLs: 1}, found: []string{"grants", "exclusion", "order"},
	},
	"a grant that lapsed and is told as a mistake of the caller": {
		edits: []edit{{"lock/engine/handoff.go",
			"cmp.Or(rules.Lapsed(undelivered.Spec.TTL.Duration), lock.ErrUnavailable))", "cmp.Or(rules.Lapsed(undelivered.Spec.TTL.Duration), lock.ErrInvalid))"}},
		faults: []fault{freezeEtcd}, workload: workload{clients: 24, keys: 4, waits: 1, longWaits: 1}, found: []string{"answers"},
	},
	"a refusal that is told as an outage": {
		edits:  []edit{{"lock/engine/refused.go", "	case isRefused:\n", "	case isRefused && refused == (refusal.Refusal{}):\n"}},
		faults: []fault{quota, terminating}, workload: ordinary, found: []string{"answers"}, isLate: true,
	},
	"a delete in conflict that counts as its own": {
		edits: []edit{{"lock/engine/release.go", "refusal.IsNotFound(err): // Another write was faster.\n", "refusal.IsNotFound(err):\n			unanswered = current.UID\n"}},
		test:  finder{folder: "lock/engine", name: "TestOneOfTwoEndersIsToldThatItEndedTheGrant", says: "calls were told that they ended a grant"},
	},
	"the same among calls that come at any time": {
		edits:    []edit{{"lock/engine/release.go", "refusal.IsNotFound(err): // Another write was faster.\n", "refusal.IsNotFound(err):\n			unanswered = current.UID\n"}},
		workload: workload{clients: 12, keys: 12, waits: 0.4, twice: 1}, found: []string{"releases"},
	},
	"an end of a lock that leaves its finalizers": {
		edits: []edit{{"lock/engine/release.go", "	if next != nil {\n", "	if next != nil && version == \"\" {\n"}},
		test:  finder{folder: "test/admission", name: "TestAdmission", spec: "is gone when its holder released it", says: "Expected success"},
	},
	"a reap that leaves the finalizers of a lock": {
		edits: []edit{{"lock/removal/removal.go", "	if next != nil {\n", "	if next != nil && version == \"\" {\n"}},
		test:  finder{folder: "test/admission", name: "TestAdmission", spec: "is reaped", says: "the lock is still there"},
	},
	"a release that waits for the dependents of a lock": {
		edits: []edit{{"lock/engine/release.go", "metav1.DeletePropagationBackground", "metav1.DeletePropagationForeground"}},
		test:  finder{folder: "test/admission", name: "TestAdmission", spec: "is gone when it was released beside its dependent", says: "the lock is still there"},
	},
	"a lock that its holder owns": {
		edits: []edit{{"lock/rules/admission.go", "import (\n", "import (\n	metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n"}, {"lock/rules/admission.go",
			"	dropHolderOwner(next, nil)\n	return next, validated(next.Spec.HolderRef), nil\n",
			`	if ref := next.Spec.HolderRef; ref != nil {
		next.OwnerReferences = []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}}
	}
	return next, validated(next.Spec.HolderRef), nil
`}},
		test: finder{folder: "test/holders", name: "TestHolders", spec: "leaves a lock to the operator", says: "Failed after"},
	},
	"a lock with owners whose next holder gets the same UID": {
		edits: []edit{{"lock/rules/expiry.go", "lock.DeletionTimestamp.IsZero() && len(lock.OwnerReferences) == 0", "lock.DeletionTimestamp.IsZero()"}},
		test:  finder{folder: "lock/engine", name: "TestOwnersOfAFormerHolder", says: "holds the object"},
	},
	"a suspended machine that believes in its lock": {
		edits: []edit{{"lock/servertime/clock.go", "		return deadline.Sub(now) - jump - wallResolution\n", "		return deadline.Sub(now)\n"}},
		test:  finder{folder: "lock", name: "TestASuspendedMachineDoesNotBelieveInItsLock", says: "want ErrUnavailable"},
	},
	"a suspend that is followed by no renewal": {
		edits: []edit{{"lock/held_loop.go", "servertime.Jump(h.renewal.next, now) > 0", "servertime.Jump(now, now) > 0"}},
		test:  finder{folder: "lock", name: "TestAShortSuspendIsFollowedByARenewal", says: "requests (-want +got)"},
	},
	"several locks of which one was lost before the last was granted": {
		edits: []edit{{"lock/together/acquire.go", "range s.taken[:count-1] {", "range s.taken[:0] {"}},
		test:  finder{folder: "lock", name: "TestASetThatIsNotGrantedHoldsNothing", says: "want one that matches"},
	},
	"a lock that is kept beside a wait for another": {
		edits: []edit{{"lock/together/acquire.go", "round >= FreeRounds && !s", "round >= 1 && !s"}},
		test:  finder{folder: "lock", name: "TestASetWaitsForOneLockAndKeepsNoOther", says: "a is kept while b is waited for"},
	},
	"a delay of heads that does not grow with their losses": {
		edits: []edit{{"lock/engine/spread.go", "s.losses = min(s.losses+1, maxLosses)", "s.losses = min(s.losses+1, 1)"}},
		test:  finder{folder: "lock/engine", name: "TestAReleaseCostsFewWritesHoweverManyEnginesWait", says: "tries"},
	},
	"looks at holders without a rate": {
		edits: []edit{{"controllers/holders/watches.go", "rate.NewLimiter(looksPerSecond, looksAtOnce)", "rate.NewLimiter(rate.Inf, looksAtOnce)"}},
		test:  finder{folder: "controllers/holders", name: "TestLooksAreLimitedByARate", says: "are looked at in second 1"},
	},
	"reads of holders that are all under way at once": {
		edits: []edit{{"controllers/holders/watches.go", "make(chan struct{}, maxReads)", "make(chan struct{}, limit)"}},
		test:  finder{folder: "controllers/holders", name: "TestReadsUnderWayAreLimited", says: "reads are under way"},
	},
	"a home that takes back any grant to the owner": {
		edits: []edit{{"lock/line/host.go", "	proof.FencingToken, _ = granted.FencingToken()\n	return proof\n", "	return proof\n"}},
		test:  finder{folder: "lock/line", name: "TestAHomeTakesBackItsOwnGrantAlone", says: "the lock is held by"},
	},
	"an offer that is the caller's before the home has confirmed it": {
		edits: []edit{{"lock/line/peer.go",
			"		v.outbox.put(question{ID: told.ID, Kind: take})\n",
			"		v.outbox.put(question{ID: told.ID, Kind: take})\n		by.into.put(outcome{result: done, lock: told.Lock})\n"}},
		test: finder{folder: "lock/line", name: "TestAGrantThatNoReplicaTakesPassesOn", says: "two have the lock"},
	},
	"a grant to a later try that is taken for one to this try": {
		edits: []edit{{"lock/engine/queue.go", "	return granted, try < grantedTry\n", "	return granted, len(try) < len(grantedTry)\n"}},
		test:  finder{folder: "lock/engine", name: "TestAGrantThatItsCallerHasFoundIsNotClaimed", says: "the caller is told"},
	},
	"tries of a wait without a number": {
		edits: []edit{{"lock/line/wait.go", "	w.tries++\n", ""}},
		test:  finder{folder: "lock/line", name: "TestEachTryOfAWaitIsNumbered", says: "the lock records try"},
	},
	"a move to the next home that forgets the place": {
		edits: []edit{
			{"lock/line/host.go", "request.PlaceSince = v.since(asked.Stood)\n", "request.PlaceSince = v.since(asked.Came)\n"},
			{"lock/line/try.go", "request.PlaceSince = w.since(w.stood)\n", "request.PlaceSince = w.since(w.came)\n"},
		},
		test: finder{folder: "lock/line", name: "TestAPlaceThatIsTakenUpOutlivesItsHome", says: "the order of grants is"},
	},
	"a release that has failed at home and counts as done": {
		edits: []edit{{"lock/line/host.go", "caller knows.\n		return answer{ID: asked.ID, Result: unknown}\n", "caller knows.\n		return answer{ID: asked.ID, Result: done}\n"}},
		test:  finder{folder: "lock/line", name: "TestAReleaseThatFailsAtHomeIsDoneByItsReplica", says: "the lock is held by"},
	},
	"a release that was overtaken at home and counts as done": {
		edits: []edit{{"lock/line/host.go", "!errors.Is(err, engine.ErrOver) && (", "false && ("}},
		test:  finder{folder: "lock/line", name: "TestOneOfTwoReleasesThroughTwoReplicasHasEndedTheGrant", says: "the overtaken release is told"},
	},
	"a home that ends what was renewed since its release was asked for": {
		edits: []edit{{"lock/line/host.go", "engine.ContextWithoutCaller(ctx, came)", "ctx"}},
		test:  finder{folder: "lock/line", name: "TestAReleaseOfACallerThatHasGoneOnIsGivenUp", says: "the lock is held by"},
	},
	"a release of whatever was renewed since its caller has left": {
		edits: []edit{{"lock/engine/release.go", "if isRenewal && c.by.mayGoOn() {", "if false && isRenewal && c.by.mayGoOn() {"}},
		test:  finder{folder: "lock/engine", name: "TestAReleaseBeforeARenewalElsewhereIsGivenUp", says: "the lock is held by"},
	},
	"a forwarded release of whatever grant the owner has by then": {
		edits: []edit{
			{"lock/line/host.go", "	proof, version, isKnown := v.host.local.Known(", "	proof := *asked.Proof\n	_, version, isKnown := v.host.local.Known("},
			{"lock/line/release.go", "	return proof.LimitedTo(latest), true\n", "	return proof, true\n"},
		},
		test: finder{folder: "lock/line", name: "TestALateReleaseDoesNotEndTheNextGrant", says: "the lock is held by"},
	},
	"a forwarded renewal of whatever version there is by then": {
		edits: []edit{{"lock/line/host.go", "cmp.Or(proof.ResourceVersion, version)", "cmp.Or(proof.ResourceVersion, version[:0])"}},
		test:  finder{folder: "lock/line", name: "TestALateRenewalDoesNotShortenTheNext", says: "the lock expires"},
	},
	"an owner token that takes up the place of another identity": {
		edits: []edit{{"lock/engine/places/kept.go", "Owner: by.Owner, Holder: by.Holder, HolderUID: by.HolderUID}", "Owner: by.Owner}"}},
		test:  finder{folder: "lock/engine", name: "TestAPlaceIsOfOneIdentity", says: "in line stand"},
	},
	"a port for replicas that any authenticated caller may use": {
		edits: []edit{{"facade/peers/service.go", "shown.user == s.options.User && s.isMember(pod)", "s.isMember(pod)"}},
		test:  finder{folder: "facade/peers", name: "TestOnlyReplicasAreAdmitted", says: "served true"},
	},
	"a token of no replica that costs the API server a review": {
		edits: []edit{{"facade/peers/service.go", "s.options.IsMember != nil && !s.mayBeAdmitted(shown)", "s.options.IsMember == nil && !s.mayBeAdmitted(shown)"}},
		test:  finder{folder: "facade/peers", name: "TestATokenIsOfAReplica", says: "asked 1 times"},
	},
}

// mustExist checks that the package has the test and the spec.
func (f finder) mustExist(t *testing.T) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(moduleRoot(t), f.folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(content)
	}
	for _, text := range []string{"func " + f.name + "(t *testing.T)", f.spec} {
		if !strings.Contains(sources.String(), text) {
			t.Errorf("no test in %s has the following; adjust the breakage:\n%s", f.folder, text)
		}
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// changed returns the content of each file that the breakage changes, by its path.
func (b breakage) changed(t *testing.T) map[string]string {
	t.Helper()
	changed := map[string]string{}
	for _, edit := range b.edits {
		path := filepath.Join(moduleRoot(t), edit.file)
		if _, isChanged := changed[path]; !isChanged {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed[path] = string(content)
		}
		if count := strings.Count(changed[path], edit.old); count != 1 {
			t.Fatalf("%s has %d of the following, not one; adjust the breakage:\n%s", edit.file, count, edit.old)
		}
		changed[path] = strings.Replace(changed[path], edit.old, edit.new, 1)
	}
	return changed
}

// TestBreakagesApply is quick, and fails when a change of the product makes a breakage
// inapplicable.
func TestBreakagesApply(t *testing.T) {
	var folders []string
	for _, breakage := range breakages {
		for _, edit := range breakage.edits {
			folders = append(folders, "./"+filepath.Dir(edit.file))
		}
	}
	imported := importerFor(t, folders)
	for name, breakage := range breakages {
		t.Run(name, func(t *testing.T) {
			mustCompile(t, imported, breakage.changed(t))
			if breakage.test != (finder{}) {
				breakage.test.mustExist(t)
			}
		})
	}
}

// mustCompile checks the types of the packages of the changed files, at much less cost than a build.
func mustCompile(t *testing.T, imported types.Importer, changed map[string]string) {
	t.Helper()
	for path := range changed {
		pkg, err := gobuild.ImportDir(filepath.Dir(path), 0)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range pkg.GoFiles {
			name = filepath.Join(pkg.Dir, name)
			var source any // nil, so that the parser reads the file, unless it is changed
			if content, ok := changed[name]; ok {
				source = content
			}
			file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		if _, err := (&types.Config{Importer: imported}).Check(pkg.Name, set, files, nil); err != nil {
			t.Errorf("the breakage does not compile: %v", err)
		}
	}
}

// importerFor returns an importer of what the packages in the folders depend on.
func importerFor(t *testing.T, folders []string) types.Importer {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	if raceEnabled { // These are built already.
		arguments = append(arguments, "-race")
	}
	command := exec.CommandContext(t.Context(), "go", append(arguments, folders...)...)
	command.Dir = moduleRoot(t)
	listed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(listed)) {
		path, export, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}
