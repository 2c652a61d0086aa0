package top_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/cli/top"
	"forrst.dev/lock-operator/test/support/golden"
)

var now = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

func lockAt(key string, acquired, expires time.Duration) *v1alpha1.Lock {
	stamp := func(after time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(now.Add(after))) }
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: key},
		Spec: v1alpha1.LockSpec{
			Key: key, Scope: v1alpha1.ScopeGlobal, Holder: "system:serviceaccount:payments:worker", Reason: "because of a reason that is far too long for a narrow terminal",
			AcquireTime: stamp(acquired), RenewTime: stamp(acquired), ExpireTime: stamp(expires), FencingToken: new(int64(7)),
		},
	}
}

func frame(model *top.Model, screen top.Screen, at time.Time) string {
	return strings.Join(screen.Frame(model, human.Times{Now: at}), "\n") + "\n"
}

func narrow() top.Screen {
	return top.Screen{Terminal: terminal.Terminal{IsTerminal: true, Width: 80, Height: 24}, Where: "namespace payments"}
}

func TestAModelThatIsNotLoadedSaysSo(t *testing.T) {
	model := new(top.Model)
	if got := frame(model, narrow(), now); !strings.Contains(got, "Loading…") || strings.Contains(got, "No locks") {
		t.Errorf("before the first list:\n%s", got)
	}
	model.Listed(nil)
	if got := frame(model, narrow(), now); !strings.Contains(got, "No locks are held.") {
		t.Errorf("of an empty namespace:\n%s", got)
	}
}

func TestAFrameFitsTheTerminal(t *testing.T) {
	model := new(top.Model)
	var all []*v1alpha1.Lock
	for index := range 100 {
		all = append(all, lockAt(fmt.Sprintf("key-%03d-%s", index, strings.Repeat("long", index%9)), -time.Minute, time.Duration(index+2)*time.Second))
	}
	model.Listed(all)
	model.SetWaiting(map[locks.ID][]locks.Job{{Namespace: "payments", Key: v1alpha1.FullKeyOf("key-003-" + strings.Repeat("long", 3))}: make([]locks.Job, 2)})
	screen := narrow()
	got := frame(model, screen, now)
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if terminal.Columns(line) > 80 {
			t.Errorf("%d columns: %q", terminal.Columns(line), line)
		}
	}
	golden.Check(t, "frame.txt", got)
	screen.Order = 1
	golden.Check(t, "by_waiters.txt", frame(model, screen, now))
}

// A Job that has got the lock waits to be started for a moment.
func TestTheHolderIsNoWaiter(t *testing.T) {
	model := new(top.Model)
	held := lockAt("billing:report", -time.Minute, time.Minute)
	held.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "monthly-close-of-the-books", UID: "close"}
	model.Listed([]*v1alpha1.Lock{held})
	model.SetWaiting(map[locks.ID][]locks.Job{locks.IDOf(held): {
		{Name: "monthly-close-of-the-books", UID: "close"}, {Name: "nightly", UID: "nightly"},
	}})
	screen := narrow()
	screen.AllNamespaces = true
	golden.Check(t, "of_a_job.txt", frame(model, screen, now))
}

func TestCounts(t *testing.T) {
	model := new(top.Model)
	model.Listed([]*v1alpha1.Lock{lockAt("a", -time.Minute, time.Minute)})
	screen := narrow()
	frame(model, screen, now)
	model.Changed(lockAt("a", -time.Minute, 2*time.Minute), false) // renewed
	model.Changed(lockAt("a", time.Second, time.Minute), false)    // handed off
	model.Changed(lockAt("b", time.Second, 2*time.Second), false)  // acquired
	model.Changed(lockAt("b", 3*time.Second, time.Minute), false)  // acquired again, after it expired
	model.Changed(lockAt("b", 3*time.Second, time.Minute), true)   // released
	got := frame(model, screen, now.Add(2*time.Second))
	if want := "Per second: acquired 1.0   handed off 0.5   renewed 0.5   released 0.5"; !strings.Contains(got, want) {
		t.Errorf("want %q in:\n%s", want, got)
	}
}

func TestTroubleIsShown(t *testing.T) {
	model := new(top.Model)
	model.Listed(nil)
	model.Failed(errors.New("connection refused"))
	if got := frame(model, narrow(), now); !strings.Contains(got, "! Out of date; trying again: connection refused") {
		t.Errorf("got:\n%s", got)
	}
	model.Failed(nil)
	if got := frame(model, narrow(), now); strings.Contains(got, "Out of date") {
		t.Errorf("got:\n%s", got)
	}
}
