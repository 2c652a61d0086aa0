package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/golden"
)

const secretOwner = "a-secret-owner-token"

// hand runs commands that take locks by hand, of one backend and one clock.
type hand struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	backend *locktest.Backend
	file    string
}

func newHand(t *testing.T) *hand {
	t.Helper()
	stopped := clocktesting.NewFakeClock(now)
	return &hand{
		t: t, clock: stopped, file: filepath.Join(t.TempDir(), "token"),
		backend: locktest.New(locktest.WithClock(stopped), locktest.WithOwner(secretOwner), locktest.WithHolder("ann")),
	}
}

// run runs a command on the file of the hand. The owner token must never be printed.
func (h *hand) run(args ...string) result {
	h.t.Helper()
	got := run(h.t, session.Options{Locks: h.backend, Clock: h.clock}, append(args, "--owner-file", h.file)...)
	if strings.Contains(got.out+got.errOut, secretOwner) {
		h.t.Errorf("%v shows the owner token:\n%s", args, got)
	}
	return got
}

func (h *hand) check(name string, got result, status failure.Code) {
	h.t.Helper()
	if got.status != int(status) {
		h.t.Errorf("exit status %d, want %d:\n%s", got.status, status, got)
	}
	golden.Check(h.t, "grant/"+name+".txt", strings.ReplaceAll(got.String(), filepath.Dir(h.file), "/folder"))
}

func (h *hand) isHeld(key v1alpha1.FullKey) bool {
	h.t.Helper()
	_, err := h.backend.Get(h.t.Context(), "", key)
	return err == nil
}

func TestHoldsALockByHand(t *testing.T) {
	hand := newHand(t)
	hand.check("acquired", hand.run("acquire", "billing:report", "--reason", "monthly close"), 0)
	content, err := os.ReadFile(hand.file)
	if err != nil || !strings.Contains(string(content), secretOwner) {
		t.Errorf("the file has no owner token: %s, %v", content, err)
	}
	hand.check("busy", hand.run("acquire", "billing:report"), failure.Busy)
	if after, err := os.ReadFile(hand.file); err != nil || !bytes.Equal(after, content) {
		t.Errorf("an acquire that failed has changed the file: %s, %v", after, err)
	}

	hand.clock.Step(4 * time.Minute)
	hand.check("renewed", hand.run("renew", "billing:report"), 0)
	hand.clock.Step(4 * time.Minute)
	hand.check("renewed_for_longer", hand.run("renew", "billing:report", "--ttl", "1h", "-o", "json"), 0)

	hand.check("released", hand.run("release", "billing:report"), 0)
	if hand.isHeld("lock:billing:report") {
		t.Error("the lock is held after its release")
	}
	if _, err := os.Stat(hand.file); !os.IsNotExist(err) {
		t.Errorf("the owner token is still there: %v", err)
	}
	hand.check("no_token", hand.run("release", "billing:report"), failure.NotHeld)
}

func TestSaysThatALockWasLost(t *testing.T) {
	hand := newHand(t)
	hand.run("acquire", "k")
	hand.clock.Step(6 * time.Minute)
	hand.check("expired", hand.run("renew", "k"), failure.NotHeld)
	_ = hand.backend.Expire("", "lock:k") // It may be gone.
	if _, err := lock.NewClient(hand.backend, "", lock.WithClock(hand.clock)).TryAcquire(t.Context(), "k", lock.WithOwner("another"), lock.WithoutRenewal()); err != nil {
		t.Fatal(err)
	}
	hand.check("lost", hand.run("renew", "k"), failure.NotHeld)
	hand.check("lost_release", hand.run("release", "k"), failure.NotHeld)
	if !hand.isHeld("lock:k") {
		t.Error("the lock of the next holder was released")
	}
}

// The token may be shared, as --owner-stdin permits. The number of the grant tells.
func TestReleasesItsOwnGrantOnly(t *testing.T) {
	hand := newHand(t)
	hand.run("acquire", "k")
	if err := hand.backend.ForceRelease(t.Context(), "", "lock:k", "test"); err != nil {
		t.Fatal(err)
	}
	other := newHand(t)
	other.backend = hand.backend
	other.run("acquire", "k")
	if got := hand.run("release", "k"); got.status != int(failure.NotHeld) || !hand.isHeld("lock:k") {
		t.Errorf("a later grant of the same owner token was released: %s", got)
	}
}

// Another command of the same user may wait for the lock, and keeps its proof in the same file.
func TestLeavesTheProofOfTheNextGrant(t *testing.T) {
	hand := newHand(t)
	hand.run("acquire", "k")
	hand.backend.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Release {
			hand.backend.SetHooks(locktest.Hooks{})
			if got := hand.run("acquire", "k"); got.status != 0 {
				t.Error(got)
			}
		}
		return nil
	}})
	for range 2 {
		if got := hand.run("release", "k"); got.status != 0 {
			t.Error(got)
		}
	}
}

func TestTakesNoLockWhoseTokenItCannotKeep(t *testing.T) {
	hand := newHand(t)
	hand.file = filepath.Join(filepath.Dir(hand.file), "missing", "token")
	if got := hand.run("acquire", "k"); got.status != int(failure.Usage) {
		t.Errorf("exit status %d", got.status)
	}
	if calls := hand.backend.Calls(); len(calls) > 0 || hand.isHeld("lock:k") {
		t.Errorf("the lock was asked for: %v", calls)
	}
	if got := hand.run("acquire", "k", "--owner-fd", "987"); got.status != int(failure.Usage) {
		t.Errorf("two places: exit status %d", got.status)
	}
}

func TestPrintsGrantsForMachines(t *testing.T) {
	hand := newHand(t)
	hand.check("acquired_name", hand.run("acquire", "k", "-o", "name"), 0)
	hand.run("release", "k")
	got := hand.run("acquire", "k", "-o", "json", "--ttl", "90s", "--show-times")
	hand.check("acquired_json", got, 0)
	var output map[string]any
	if err := json.Unmarshal([]byte(got.out), &output); err != nil {
		t.Error(err)
	}
	hand.check("released_json", hand.run("release", "k", "-o", "json"), 0)
}

func TestReadsAnOwnerToken(t *testing.T) {
	hand := newHand(t)
	options := session.Options{Locks: hand.backend, Clock: hand.clock, Streams: genericiooptions.IOStreams{In: strings.NewReader("chosen\n")}}
	if got := run(t, options, "acquire", "k", "--owner-stdin", "--owner-file", hand.file); got.status != 0 {
		t.Fatal(got)
	}
	held, err := hand.backend.Get(t.Context(), "", "lock:k")
	if err != nil || held.Spec.Owner != "chosen" {
		t.Errorf("%v, %v", held, err)
	}
}

func TestRefusesWrongArguments(t *testing.T) {
	hand := newHand(t)
	for name, args := range map[string][]string{
		"wrong_wait":     {"acquire", "k", "--wait", "soon"},
		"negative_wait":  {"acquire", "k", "--wait", "-1s"},
		"wrong_ttl":      {"acquire", "k", "--ttl", "0s"},
		"long_ttl":       {"acquire", "k", "--ttl", "100h"},
		"invisible_key":  {"acquire", "k\u200b"},
		"wrong_output":   {"release", "k", "-o", "yaml"},
		"no_key":         {"renew"},
		"negative_renew": {"renew", "k", "--ttl", "-1s"},
	} {
		t.Run(name, func(*testing.T) { hand.check(name, hand.run(args...), failure.Usage) })
	}
	if hand.isHeld("lock:k") {
		t.Error("the lock was taken")
	}
}

// An earlier release granted such keys.
func TestALockUnderAnInvisibleKeyIsOnlyKept(t *testing.T) {
	const key = "deploy\u00a0"
	options := func() session.Options {
		return session.Options{Cluster: as("carol@example.com", everything, fakeCluster(heldLock("payments", key, nil)))}
	}
	for _, args := range [][]string{{"acquire", key}, {"run", key, "--", "true"}, {"freeze", "--until", "1h", "--key", key}} {
		got := run(t, options(), append(args[:1:1], append([]string{"-n", "payments"}, args[1:]...)...)...)
		if got.status != int(failure.Usage) || !strings.Contains(got.errOut, "must not begin or end with white space: character 7 is U+00A0") {
			t.Errorf("%q: status %d: %s", args, got.status, got)
		}
	}
	for _, args := range [][]string{{"who", key}, {"wait", key, "--for", "held"}, {"free", key, "--reason", "it hangs", "--yes"}} {
		if got := run(t, options(), append(args, "-n", "payments")...); got.status != 0 {
			t.Errorf("%q: status %d: %s", args, got.status, got)
		}
	}
	if err := oneKey(nil)(&cobra.Command{Use: "release"}, []string{key}); err != nil {
		t.Error(err)
	}
}

// A key that looks like a held one is not called free: the caller would work at the same time as the holder.
func TestAnInvisibleKeyIsNotFree(t *testing.T) {
	for key, want := range map[string]string{
		"deploy\u200b": "must not contain invisible characters: character 7 is U+200B", "\ufeffdeploy": "must not contain invisible characters: character 1 is U+FEFF",
		"deploy ": "must not begin or end with white space: character 7 is U+0020",
	} {
		for name, options := range map[string]session.Options{
			"directly": {Cluster: as("carol@example.com", everything, fakeCluster(payments()...))}, "through a façade": {Locks: locktest.New()},
		} {
			for _, args := range [][]string{{"wait", key}, {"wait", key, "--for", "held"}, {"who", key}, {"free", key, "--reason", "it hangs", "--yes"}} {
				got := run(t, options, append(args, "-n", "payments")...)
				if got.status != int(failure.Usage) || !strings.Contains(got.errOut, "the KEY "+want) || got.out != "" {
					t.Errorf("%s, %q: status %d: %s", name, args, got.status, got)
				}
				if name == "directly" && !strings.Contains(got.errOut, "did you mean deploy?") {
					t.Errorf("%q: no hint: %s", args, got)
				}
			}
			got := run(t, options, "release", key, "-n", "payments", "--owner-file", filepath.Join(t.TempDir(), "none"))
			if got.status != int(failure.NotHeld) || !strings.Contains(got.errOut, "the KEY "+want) || strings.Contains(got.errOut, "acquire") {
				t.Errorf("%s, release %q: status %d: %s", name, key, got.status, got)
			}
		}
	}
}

// What is printed of an old key names it: a shell reads the same key from a command.
func TestWritesAnInvisibleKeySoThatItShows(t *testing.T) {
	const key = "it's\u200b"
	ended := func(spec *v1alpha1.LockSpec) { spec.ExpireTime = new(v1alpha1.NewTimestamp(now.Add(-time.Second))) }
	for _, test := range []struct {
		args   []string
		change func(*v1alpha1.LockSpec)
		want   string
	}{
		{[]string{"wait", key, "--for", "held"}, nil, `it's\u200b is held`},
		{[]string{"free", key, "--reason", "it hangs", "--yes"}, nil, `it's\u200b taken from`},
		{[]string{"free", key, "--reason", "it hangs", "--yes"}, ended, `it's\u200b has expired`},
		{[]string{"who", key}, nil, `kubectl lock wait $'it\'s\342\200\213' --for free`},
		{[]string{"who", key}, ended, `No new lock may have this KEY: it must not contain invisible characters: character 5 is U+200B.`},
		{[]string{"release", key, "--owner-file", "/nonexistent/token"}, nil, `there is no owner token of it's\u200b`},
	} {
		got := run(t, session.Options{Cluster: as("carol@example.com", everything, fakeCluster(heldLock("payments", key, test.change)))}, append(test.args, "-n", "payments")...)
		if !strings.Contains(got.out+got.errOut, test.want) || strings.Contains(got.out+got.errOut, "\u200b") || strings.Contains(got.out, "acquire") {
			t.Errorf("%q: %s", test.args, got)
		}
	}
}

func TestTellsThatTheServiceIsAway(t *testing.T) {
	hand := newHand(t)
	hand.run("acquire", "k")
	hand.backend.SetUnavailable(true)
	if got := hand.run("renew", "k"); got.status != int(failure.Unavailable) {
		t.Errorf("exit status %d", got.status)
	}
	if _, err := os.Stat(hand.file); err != nil {
		t.Errorf("the token of a lock that may be held is gone: %v", err)
	}
}
