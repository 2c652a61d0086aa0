package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

var _ lock.LineReader = (*lined)(nil)

// lined is a backend with callers that wait.
type lined struct {
	lock.Backend
	waiters []lock.Waiter
}

func (l *lined) Waiters(_ context.Context, _ string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool, err error) {
	if key != "" && key != l.waiters[0].FullKey() {
		return nil, true, nil
	}
	return l.waiters[:min(limit, len(l.waiters))], len(l.waiters) <= limit, nil
}

func TestWaiters(t *testing.T) {
	since := time.Date(2024, 3, 15, 10, 30, 0, 123000, time.UTC)
	line := &lined{}
	for i := range wire.MaxWaiters + 1 {
		line.waiters = append(line.waiters, lock.Waiter{
			Namespace: namespace, Scope: v1alpha1.ScopeFunction, Function: "f", Key: "a:b", Place: i + 1, Priority: 5, Holder: fmt.Sprint("caller ", i), Door: "rest", Reason: "rollout",
			HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}, Since: since, Until: since.Add(time.Hour),
		})
	}
	f := newFixtureWith(t, func(config *testfacade.Settings) { config.Locks = line })
	line.Backend = f.locks
	for key, number := range map[v1alpha1.FullKey]int{"": 3, "lock:f:a:b": 3, "lock:free": 0} {
		got, isComplete, err := f.Waiters(t.Context(), namespace, key, 3)
		if isComplete != (number == 0) {
			t.Errorf("%q: complete %t", key, isComplete)
		}
		if diff := cmp.Diff(line.waiters[:number], got); err != nil || diff != "" && len(got)+number > 0 {
			t.Errorf("%q: %v (-want +got):\n%s", key, err, diff)
		}
	}
	if got, isComplete, err := f.Waiters(t.Context(), namespace, "", 10*wire.MaxWaiters); err != nil || isComplete || len(got) != wire.MaxWaiters {
		t.Errorf("%d: %v", len(got), err)
	}
}

func TestAnOlderFacadeDoesNotTellWhoWaits(t *testing.T) {
	f := newFixture(t)
	f.fixed = `null,"errors":[{"code":"FUNCTION_NOT_FOUND","message":"Function not found"}]`
	if got, _, err := f.Waiters(t.Context(), namespace, "", 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%+v: %v", got, err)
	}
}
