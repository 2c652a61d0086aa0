package cli

import (
	"context"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/golden"
)

// lined is a façade that tells who waits.
type lined struct {
	*locktest.Backend
	waiters []lock.Waiter
	err     error
	// isPart says that more wait than can be told.
	isPart bool
}

func (l *lined) Waiters(_ context.Context, _ string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool, err error) {
	for _, waiter := range l.waiters {
		if key == "" || key == waiter.FullKey() {
			found = append(found, waiter)
		}
	}
	return found[:min(limit, len(found))], len(found) <= limit && !l.isPart, l.err
}

// lineThroughAFacade has the lock billing:report, which two callers wait for, and the lock nightly, which none does.
func lineThroughAFacade(t *testing.T) (session.Options, *lined) {
	t.Helper()
	stepped := clocktesting.NewFakeClock(now)
	line := &lined{Backend: locktest.New(locktest.WithClock(stepped))}
	for _, key := range []string{"billing:report", "nightly"} {
		request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: "o", TTL: time.Hour, Holder: "system:serviceaccount:payments:worker"}}
		if _, err := line.Acquire(t.Context(), "", request); err != nil {
			t.Fatal(err)
		}
	}
	line.waiters = []lock.Waiter{
		{
			Scope: v1alpha1.ScopeGlobal, Key: "billing:report", Place: 1, Holder: "system:serviceaccount:payments:worker", Reason: "month end\x1b[31m",
			HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-1", UID: "u"}, Since: now.Add(-time.Minute), Until: now.Add(time.Minute),
		},
		{Scope: v1alpha1.ScopeGlobal, Key: "billing:report", Place: 2, Holder: "carol@example.com", Since: now.Add(-time.Second)},
	}
	return session.Options{Locks: line, Clock: stepped}, line
}

func TestThoseThatWaitThroughAFacade(t *testing.T) {
	options, line := lineThroughAFacade(t)
	golden.Check(t, "waiters/who.txt", run(t, options, "who", "billing:report").String())
	golden.Check(t, "waiters/who_none.txt", run(t, options, "who", "nightly").String())
	golden.Check(t, "waiters/list.txt", run(t, options, "list", "--sort", "waiters").String())
	line.isPart = true
	golden.Check(t, "waiters/who_part.txt", run(t, options, "who", "billing:report").String())
	line.isPart = false
	for i := range maxCallers {
		line.waiters = append(line.waiters, lock.Waiter{Scope: v1alpha1.ScopeGlobal, Key: "nightly", Place: i + 1, Holder: "carol@example.com"})
	}
	golden.Check(t, "waiters/list_many.txt", run(t, options, "list").String())
	line.err = fmt.Errorf("%w: you may not list locks", lock.ErrForbidden)
	golden.Check(t, "waiters/who_not_known.txt", run(t, options, "who", "billing:report").String())
	golden.Check(t, "waiters/list_not_known.txt", run(t, options, "list").String())
}
