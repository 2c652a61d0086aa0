//go:build linux

package run_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// The lock "a b" is granted after that of "c", though it comes first: the larger token must fence both.
func TestTheCommandOfSeveralKeysKnowsItsLocks(t *testing.T) {
	service := newService(t)
	release := occupy(t, service, "c")
	waiting := make(chan struct{}, 1)
	service.SetHooks(hookWaiting(waiting))
	// The outer run has variables that the inner ones must not see.
	innermost := fmt.Sprintf(`exec %s run --server %s inner -- sh -c 'echo "$FORRST_LOCK_KEY ${FORRST_LOCK_KEYS-no keys}"'`, os.Args[0], service.url)
	r := service.start(t, "outer", "--", os.Args[0], "run", "--server", service.url, "c", "a b", "--", "sh", "-c",
		`echo "${FORRST_LOCK_KEY-no key}, ${FORRST_LOCK_TOKEN_FILE-no file}, $FORRST_LOCK_FENCING_TOKEN"; echo "$FORRST_LOCK_RUNS"; echo "$FORRST_LOCK_KEYS"; `+innermost)
	<-waiting
	release()
	variables := strings.Join(r.line(), " ")
	var runs []struct {
		Key          string
		FencingToken int64
	}
	if text := strings.Join(r.line(), " "); json.Unmarshal([]byte(text), &runs) != nil || len(runs) != 3 {
		t.Fatalf("the runs are %s, want one of each key", text)
	}
	if runs[0].Key != "outer" || runs[1].Key != "a b" || runs[2].Key != "c" || runs[1].FencingToken <= runs[2].FencingToken || runs[2].FencingToken <= runs[0].FencingToken {
		t.Errorf("the runs are %+v, want each with the token of its own grant", runs)
	}
	if want := "no key, no file, " + itoa(runs[1].FencingToken); variables != want {
		t.Errorf("got %q, want %q", variables, want)
	}
	for _, want := range []string{"c", "a b", "inner no keys"} {
		if got := strings.Join(r.line(), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	r.wantEnd(0, "waiting: c is held by alice")
	service.wantFree(t)
}

func TestBusyLocksOfSeveralKeys(t *testing.T) {
	service := newService(t)
	release := occupy(t, service, key)
	for name, test := range map[string]struct {
		flags  []string
		status int
		texts  []string
	}{
		"fail":                     {[]string{"--on-busy", "fail"}, 201, []string{"error: backup is held by alice", "kubectl lock who backup"}},
		"fail with a status":       {[]string{"--on-busy", "fail", "--conflict-exit-code", "75"}, 75, []string{"backup is held by alice"}},
		"skip":                     {[]string{"--on-busy", "skip"}, 0, []string{"skipped: backup is held by alice"}},
		"a wait that is too short": {[]string{"--wait", "100ms"}, 201, []string{"the wait is over: backup is held by alice"}},
	} {
		t.Run(name, func(t *testing.T) {
			service.start(t, append(append([]string{"a", key}, test.flags...), "--", "echo", "started")...).wantEnd(test.status, test.texts...)
			if held := service.All(); len(held) != 1 {
				t.Errorf("%d locks are held, want that of %s alone", len(held), key)
			}
		})
	}
	waiting := make(chan struct{})
	service.SetHooks(hookWaiting(waiting))
	r := service.start(t, "a", key, "--", "echo", "started")
	<-waiting
	if held := service.All(); len(held) != 1 {
		t.Errorf("%d locks are held, want no other than %s while it is waited for", len(held), key)
	}
	release()
	if got := r.line()[0]; got != "started" {
		t.Errorf("got %q", got)
	}
	r.wantEnd(0, "waiting: backup is held by alice")
	service.wantFree(t)
}

// Another holder has a. To wait for that first would end, and the wait for the outer run would not.
func TestARunOfSeveralKeysUnderOneOfThem(t *testing.T) {
	service := newService(t)
	occupy(t, service, "a")
	for name, test := range map[string]struct {
		outer, inner []string
		do           string
	}{
		"a set under a key": {[]string{"z"}, []string{"a", "z"}, "leave out that KEY"},
		"a set under a set": {[]string{"y", "z"}, []string{"a", "z"}, "leave out that KEY"},
		"a key under a set": {[]string{"y", "z"}, []string{"z"}, "run COMMAND without kubectl lock run"},
	} {
		t.Run(name, func(t *testing.T) {
			inner := append(append([]string{"--", os.Args[0], "run", "--server", service.url}, test.inner...), "--", "true")
			service.start(t, append(test.outer, inner...)...).wantEnd(201, "z is held by the kubectl lock run that has started this command", test.do)
		})
	}
}

func TestTheLossOfOneOfSeveralLocksEndsTheCommand(t *testing.T) {
	for _, lost := range []string{"a", "b"} {
		t.Run(lost, func(t *testing.T) {
			service := newService(t)
			r := service.start(t, "a", "b", "--ttl", "1h", "--", "sh", "-c", stubborn)
			r.line()
			if err := service.ForceRelease(t.Context(), namespace, v1alpha1.FullKeyOf(lost), "test"); err != nil {
				t.Fatal(err)
			}
			r.wantEnd(202, "killing the command: "+lost+" was released by you or by force", lost+" was lost, and the command was stopped")
			service.wantFree(t)
		})
	}
}

func TestACommandOfSeveralKeysThatCannotBeExecuted(t *testing.T) {
	service := newService(t)
	service.start(t, "a", "b", "--", "/nonexistent").wantEnd(127, "none of a, b was taken")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/nonexistent\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	service.start(t, "a", "b", "--", script).wantEnd(127, "a was released; b was released")
	service.wantFree(t)
}

// The kernel keeps the file locked for as long as a command runs.
func TestRunsWithCrossingKeysNeverOverlap(t *testing.T) {
	const rounds = 8
	service := newService(t)
	file := filepath.Join(t.TempDir(), "witness")
	t.Setenv("WITNESS", file)
	var contenders sync.WaitGroup
	for _, keys := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}} {
		contenders.Go(func() {
			for range rounds {
				service.start(t, append(keys, "--", "sh", "-c",
					`exec 9>>"$WITNESS.lock"; flock -n 9 || echo overlap >>"$WITNESS"; echo ran >>"$WITNESS"; sleep 0.02`)...).wantEnd(0)
			}
		})
	}
	contenders.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(text), strings.Repeat("ran\n", 3*rounds); got != want {
		t.Errorf("the commands have written %q", got)
	}
	service.wantFree(t)
}
