package locks_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// countedHolders counts how often the API server is asked for an object.
type countedHolders struct{ checks int }

func (h *countedHolders) Check(context.Context, string, rules.ValidReference) error {
	h.checks++
	return nil
}

// poorPermit is that of a caller who may ask the API server for so many things at once, two at least.
func poorPermit(t *testing.T, allowed int) *limits.Permit {
	t.Helper()
	limiter, err := limits.New(limits.Limits{RatePerCaller: allowed / 2}, clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC)))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := limiter.Admit(limits.CallerOf(&http.Request{}, "alice"), limits.Work)
	if err != nil {
		t.Fatal(err)
	}
	return permit
}

// To look for the object that a caller names costs the API server a request.
func TestACallerAtItsRateHasNoHolderLookedFor(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "waiting": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			holders := &countedHolders{}
			l, err := locks.New(locks.Options{Backend: locktest.New(), Limits: rules.DefaultLimits(), Holders: holders})
			if err != nil {
				t.Fatal(err)
			}
			caller := &access.Caller{User: &user.DefaultInfo{Name: "alice"}, Namespace: "default"}
			permit := poorPermit(t, 2)
			for index := range 5 {
				acquisition, err := l.Prepare(caller, lock.Request{
					Acquisition: rules.Acquisition{
						Key: "k" + string(rune('0'+index)), TTL: time.Minute,
						HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"},
					},
					Wait: wait,
				}, true)
				if err != nil {
					t.Fatal(err)
				}
				_, err = acquisition.Acquire(t.Context(), permit, "f")
				if refused, isRefused := errors.AsType[*limits.Error](err); isRefused != (index >= 2) || !isRefused && err != nil {
					t.Errorf("call %d: %v, %v", index, refused, err)
				}
			}
			if holders.checks != 2 {
				t.Errorf("looked for %d objects, want 2", holders.checks)
			}
		})
	}
}

// longPages reads as many chunks as it may.
type longPages struct {
	lock.Backend

	chunks   int
	underWay func()
}

func (p *longPages) ListPage(_ context.Context, _ string, request lock.PageRequest) (lock.Page, error) {
	p.underWay()
	p.chunks = 1
	for request.MayReadMore() {
		p.chunks++
	}
	return lock.Page{}, nil
}

func TestEachChunkOfAPageCountsAgainstTheRate(t *testing.T) {
	pages := &longPages{Backend: locktest.New(), underWay: func() {}}
	l, caller := newLocks(t, pages)
	permit := poorPermit(t, 8)
	if _, err := permit.Spend(t.Context(), limits.Work, 0); err != nil { // As the doors do for each call.
		t.Fatal(err)
	}
	if _, err := l.ListPage(t.Context(), caller, permit, lock.PageRequest{Limit: 1}); err != nil || pages.chunks != 8 {
		t.Errorf("%d chunks, %v; want 8", pages.chunks, err)
	}
}

func TestAListCountsWhileItIsUnderWay(t *testing.T) {
	var refused error
	pages := &longPages{Backend: locktest.New()}
	l, caller := newLocks(t, pages)
	permit := poorPermit(t, 2)
	depth := 0
	pages.underWay = func() {
		depth++
		if depth <= 2 {
			_, err := l.ListPage(t.Context(), caller, permit, lock.PageRequest{Limit: 1})
			refused = errors.Join(refused, err)
		}
	}
	if _, err := l.ListPage(t.Context(), caller, permit, lock.PageRequest{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if limit, ok := errors.AsType[*limits.Error](refused); !ok || limit.Limit != "lists_per_caller" || depth != 2 {
		t.Errorf("%d lists under way, %v", depth, refused)
	}
	if _, err := l.ListPage(t.Context(), caller, permit, lock.PageRequest{Limit: 1}); err != nil {
		t.Errorf("lists that have ended still count: %v", err)
	}
}
