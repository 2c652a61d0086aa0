package locks_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// poorPermit is that of a caller who may ask the API server for so many things at once, two at least.
func poorPermit(t *testing.T, allowed int) *limits.Permit {
	t.Helper()
	limiter, err := limits.New(limits.Limits{RatePerCaller: allowed / 2}, clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC)))
	if err != nil {
		t.Fatal(err)
	}
	permit, err := limiter.Admit(limits.CallerOf(&http.Request{}, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	return permit
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
	caller.Permit = poorPermit(t, 8)
	if err := caller.Permit.Begin(t.Context(), limits.Work, 0); err != nil { // As the doors do for each call.
		t.Fatal(err)
	}
	if _, err := l.ListPage(t.Context(), caller, lock.PageRequest{Limit: 1}); err != nil || pages.chunks != 8 {
		t.Errorf("%d chunks, %v; want 8", pages.chunks, err)
	}
}

func TestAListCountsWhileItIsUnderWay(t *testing.T) {
	var refused error
	pages := &longPages{Backend: locktest.New()}
	l, caller := newLocks(t, pages)
	caller.Permit = poorPermit(t, 2)
	depth := 0
	pages.underWay = func() {
		depth++
		if depth <= 2 {
			_, err := l.ListPage(t.Context(), caller, lock.PageRequest{Limit: 1})
			refused = errors.Join(refused, err)
		}
	}
	if _, err := l.ListPage(t.Context(), caller, lock.PageRequest{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if limit, ok := errors.AsType[*limits.Error](refused); !ok || limit.Limit != "lists_per_caller" || depth != 2 {
		t.Errorf("%d lists under way, %v", depth, refused)
	}
	if _, err := l.ListPage(t.Context(), caller, lock.PageRequest{Limit: 1}); err != nil {
		t.Errorf("lists that have ended still count: %v", err)
	}
}
