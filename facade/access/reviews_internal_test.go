package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
)

// countingAccess counts the rights that it is asked about.
type countingAccess struct {
	asked  atomic.Int32
	answer func(ctx context.Context, namespace string) error
}

// Authenticate implements [Access].
func (*countingAccess) Authenticate(*http.Request) (user.Info, error) {
	return nil, lock.ErrUnauthenticated
}

// Authorize implements [Access].
func (a *countingAccess) Authorize(ctx context.Context, _ user.Info, right authorizationv1.ResourceAttributes) error {
	namespace := right.Namespace
	a.asked.Add(1)
	return a.answer(ctx, namespace)
}

// reviewed is a control that asks a [countingAccess], of callers who may have so many rights reviewed at once.
type reviewed struct {
	*Control

	access  *countingAccess
	clock   *clocktesting.FakeClock
	limiter *limits.Limiter
}

const (
	reviewsPerSecond = 25
	reviewsAtOnce    = 2 * reviewsPerSecond
)

func newReviewed(t *testing.T, answer func(ctx context.Context, namespace string) error) *reviewed {
	t.Helper()
	r := &reviewed{access: &countingAccess{answer: answer}, clock: clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))}
	var err error
	if r.Control, err = New(Options{Access: r.access, Clock: r.clock}); err != nil {
		t.Fatal(err)
	}
	if r.limiter, err = limits.New(limits.Limits{RatePerCaller: reviewsPerSecond}, r.clock); err != nil {
		t.Fatal(err)
	}
	return r
}

// caller returns a caller that makes a call.
func (r *reviewed) caller(name, namespace string) *Caller {
	permit, err := r.limiter.Admit(limits.CallerOf(&http.Request{}, name))
	if err != nil {
		panic(err)
	}
	return &Caller{User: &user.DefaultInfo{Name: name}, Namespace: namespace, IsAuthenticated: true, Permit: permit}
}

func (r *reviewed) authorize(ctx context.Context, name, namespace string) error {
	caller := r.caller(name, namespace)
	defer caller.Permit.Release()
	return r.Authorize(ctx, caller, VerbCreate, nil)
}

// inTheirOwn allows each caller the namespace "own".
func inTheirOwn(_ context.Context, namespace string) error {
	if namespace == "own" {
		return nil
	}
	return lock.ErrForbidden
}

func TestNamesOfNamespacesCostABoundedNumberOfReviews(t *testing.T) {
	r := newReviewed(t, inTheirOwn)
	const mallory, accomplice, third = "system:serviceaccount:evil:mallory", "system:serviceaccount:evil:accomplice", "system:serviceaccount:evil:third"
	if err := r.authorize(t.Context(), mallory, "own"); err != nil {
		t.Fatal(err)
	}
	invent := func(name, namespace string) (isRefused bool) {
		// A caller that is told to wait is answered late: here it leaves.
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		err := r.authorize(ctx, name, namespace)
		if errors.Is(err, lock.ErrForbidden) {
			return false
		}
		if limit, ok := errors.AsType[*limits.Error](err); (!ok || !limit.IsCaller) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		return true
	}
	for index := range 2 * reviewsAtOnce {
		invent(mallory, fmt.Sprint("invented-", index))
		invent(accomplice, fmt.Sprint("invented-", index))
	}
	if asked := r.access.asked.Load(); asked != 2*reviewsAtOnce {
		t.Errorf("%d were reviewed of two callers", asked)
	}
	if !invent(third, "invented") {
		t.Error("a tenant has as many reviews as it has accounts")
	}
	if err := r.authorize(t.Context(), "bob", "own"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := r.authorize(t.Context(), mallory, "own"); err != nil {
		t.Errorf("what is known: %v", err)
	}
	r.clock.Step(time.Second)
	if err := r.authorize(t.Context(), mallory, "later"); !errors.Is(err, lock.ErrForbidden) {
		t.Errorf("a second later: %v", err)
	}
}

// Each use of such a right is paid for. Streams that go on ask for theirs every minute, also while their caller is at its rate.
func TestARightThatTheCallerHadIsReviewedAgainForNothing(t *testing.T) {
	r := newReviewed(t, func(context.Context, string) error { return nil })
	exhaust := func(names string) {
		t.Helper()
		for index := range reviewsAtOnce {
			if err := r.authorize(t.Context(), "alice", fmt.Sprint(names, index)); err != nil {
				t.Fatal(err)
			}
		}
	}
	exhaust("first-")
	r.clock.Step(allowedFor)
	exhaust("second-")
	before := r.access.asked.Load()
	if err := r.authorize(t.Context(), "alice", "first-0"); err != nil {
		t.Error(err)
	}
	if asked := r.access.asked.Load() - before; asked != 1 {
		t.Errorf("%d rights were reviewed", asked)
	}
	err := r.authorize(t.Context(), "alice", "third")
	if refused, ok := errors.AsType[*limits.Error](err); !ok || refused.Limit != limits.ErrCallerRate.Limit {
		t.Errorf("a right that the caller did not have: %v", err)
	}
}

func TestARightThatWasReviewedLatelyCostsNothing(t *testing.T) {
	for namespace, lasts := range map[string]time.Duration{"own": allowedFor, "other": deniedFor} {
		t.Run(namespace, func(t *testing.T) {
			r := newReviewed(t, inTheirOwn)
			reviewed := 0
			ask := func(want int) {
				t.Helper()
				for range 2 * reviewsAtOnce {
					begun, err := r.reviews.begin(t.Context(), &Caller{User: &user.DefaultInfo{Name: "alice"}}, right{Namespace: namespace})
					if err != nil {
						t.Fatal(err)
					}
					if begun.isDone != nil {
						reviewed++
					}
					begun.end(map[string]answer{"own": allowed, "other": denied}[namespace])
				}
				if reviewed != want {
					t.Errorf("%d reviews, want %d", reviewed, want)
				}
			}
			ask(1)
			r.clock.Step(lasts - 1)
			ask(1)
			r.clock.Step(1)
			ask(2)
			r.clock.SetTime(r.clock.Now().Add(-time.Hour))
			ask(3)
		})
	}
}

func TestCallsThatNeedTheSameRightAtOnceAskOnce(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		want   int32
	}{
		"allowed": {nil, 1},
		"denied":  {lock.ErrForbidden, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := make(chan struct{})
				r := newReviewed(t, func(context.Context, string) error {
					<-answer
					return test.answer
				})
				ended := make(chan error, 10)
				for range 10 {
					go func() { ended <- r.authorize(t.Context(), "alice", "own") }()
				}
				synctest.Wait()
				gone, leave := context.WithCancel(t.Context())
				go func() { ended <- r.authorize(gone, "alice", "own") }()
				synctest.Wait()
				if asked := r.access.asked.Load(); asked != test.want {
					t.Errorf("%d reviews at once, want %d", asked, test.want)
				}
				leave()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("the caller that has gone: %v", err)
				}
				close(answer)
				for range 10 {
					if err := <-ended; !errors.Is(err, test.answer) {
						t.Errorf("got %v, want %v", err, test.answer)
					}
				}
				if left := len(r.reviews.pending); left != 0 {
					t.Errorf("%d are pending", left)
				}
			})
		})
	}
}

// Calls that wait for a review which comes to nothing have their own paid for, too.
func TestReviewsAfterOneWithoutAnAnswerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newReviewed(t, func(context.Context, string) error {
			<-answer
			return errors.New("no answer")
		})
		const calls = 10
		ended := make(chan error, calls)
		for range calls {
			go func() { ended <- r.authorize(t.Context(), "mallory", "own") }()
		}
		synctest.Wait()
		close(answer)
		for range calls {
			if err := <-ended; !errors.Is(err, lock.ErrUnavailable) {
				t.Error(err)
			}
		}
		left, permit := 0, r.caller("mallory", "own").Permit
		for permit.Spend(t.Context(), limits.Work) == nil {
			left++
		}
		if paid := reviewsAtOnce - left; paid != calls {
			t.Errorf("%d of %d reviews were paid for", paid, calls)
		}
	})
}

// A review without an answer says nothing about the next one, and a panic keeps no other call waiting.
func TestReviewsThatFail(t *testing.T) {
	r := newReviewed(t, func(context.Context, string) error { panic("x") })
	func() {
		defer func() { _ = recover() }()
		_ = r.authorize(t.Context(), "alice", "own")
	}()
	r.access.answer = func(context.Context, string) error { return errors.New("no answer") }
	if err := r.authorize(t.Context(), "alice", "own"); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if len(r.reviews.pending) != 0 || r.reviews.known.Len() != 0 {
		t.Errorf("%d are pending, %d known", len(r.reviews.pending), r.reviews.known.Len())
	}
}
