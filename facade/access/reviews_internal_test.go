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

// reviewed is a control that asks a [countingAccess].
type reviewed struct {
	*Control

	access *countingAccess
	clock  *clocktesting.FakePassiveClock
}

func newReviewed(t *testing.T, answer func(ctx context.Context, namespace string) error) *reviewed {
	t.Helper()
	r := &reviewed{access: &countingAccess{answer: answer}, clock: clocktesting.NewFakePassiveClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))}
	var err error
	if r.Control, err = New(Options{Access: r.access, Clock: r.clock}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *reviewed) authorize(ctx context.Context, name, namespace string) error {
	return r.Authorize(ctx, &Caller{User: &user.DefaultInfo{Name: name}, Namespace: namespace, IsAuthenticated: true}, VerbCreate, nil)
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
	if err := r.authorize(t.Context(), "mallory", "own"); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for index := range 10_000 {
		err := r.authorize(t.Context(), "mallory", fmt.Sprint("invented-", index))
		if limit, ok := errors.AsType[*limits.Error](err); ok && limit.IsCaller {
			refused++
		} else if !errors.Is(err, lock.ErrForbidden) {
			t.Fatalf("got %v", err)
		}
	}
	if asked := r.access.asked.Load(); asked != maxReviews || refused != 10_000-maxReviews+1 {
		t.Errorf("%d were reviewed, %d refused", asked, refused)
	}
	if err := r.authorize(t.Context(), "bob", "own"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	if err := r.authorize(t.Context(), "mallory", "own"); err != nil {
		t.Errorf("its own namespace a second later: %v", err)
	}
	for index := range 10 * reviewsPerSecond {
		r.clock.SetTime(r.clock.Now().Add(time.Second / reviewsPerSecond))
		if err := r.authorize(t.Context(), "mallory", fmt.Sprint("later-", index)); !errors.Is(err, lock.ErrForbidden) {
			t.Fatalf("got %v", err)
		}
	}
	if known := r.reviews.known.Len(); known > maxReviewed {
		t.Errorf("%d answers are known", known)
	}
}

// A caller with many streams can still make calls, and one that has used up the reviews of its calls keeps its streams.
func TestStreamsAndCallsHaveReviewsOfTheirOwn(t *testing.T) {
	r := newReviewed(t, func(context.Context, string) error { return nil })
	uses := []func(*Caller) error{
		func(caller *Caller) error { return r.Authorize(t.Context(), caller, VerbCreate, nil) },
		func(caller *Caller) error { return r.AuthorizeStream(t.Context(), caller, VerbWatch, nil) },
	}
	for first := range uses {
		alice := &Caller{User: &user.DefaultInfo{Name: fmt.Sprint("alice ", first)}, IsAuthenticated: true}
		for index := range maxReviews + 1 {
			alice.Namespace = fmt.Sprint("first-", index)
			err := uses[first](alice)
			if _, isLimit := errors.AsType[*limits.Error](err); isLimit != (index == maxReviews) || !isLimit && err != nil {
				t.Fatalf("use %d, review %d: %v", first, index, err)
			}
		}
		alice.Namespace = "other"
		if err := uses[1-first](alice); err != nil {
			t.Errorf("use %d: %v", 1-first, err)
		}
	}
}

func TestARightThatWasReviewedLatelyCostsNothing(t *testing.T) {
	for namespace, lasts := range map[string]time.Duration{"own": allowedFor, "other": deniedFor} {
		t.Run(namespace, func(t *testing.T) {
			r := newReviewed(t, inTheirOwn)
			spent := func() int {
				of := r.reviews.of("alice")
				return maxReviews - int(of.allowances[forCalls].TokensAt(time.Time{}))
			}
			ask := func(want int) {
				t.Helper()
				for range 2 * maxReviews {
					if _, isLimit := errors.AsType[*limits.Error](r.authorize(t.Context(), "alice", namespace)); isLimit {
						t.Fatal("it was refused")
					}
				}
				if got := spent(); got != want {
					t.Errorf("%d reviews, want %d", got, want)
				}
			}
			ask(1)
			r.clock.SetTime(r.clock.Now().Add(lasts - 1))
			ask(1)
			r.clock.SetTime(r.clock.Now().Add(1))
			ask(1) // That of the first time has come back since.
			r.clock.SetTime(r.clock.Now().Add(-time.Hour))
			ask(2)
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
				if of := r.reviews.of("alice"); len(of.pending) != 0 {
					t.Errorf("%d are pending", len(of.pending))
				}
			})
		})
	}
}

// Calls that wait for a review which comes to nothing have their own counted, too.
func TestReviewsAfterOneWithoutAnAnswerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newReviewed(t, func(context.Context, string) error {
			<-answer
			return errors.New("no answer")
		})
		const calls = 2 * maxReviews
		ended := make(chan error, calls)
		for range calls {
			go func() { ended <- r.authorize(t.Context(), "mallory", "own") }()
		}
		synctest.Wait()
		close(answer)
		refused := 0
		for range calls {
			if _, isLimit := errors.AsType[*limits.Error](<-ended); isLimit {
				refused++
			}
		}
		if asked := r.access.asked.Load(); asked != maxReviews || refused != calls-maxReviews {
			t.Errorf("%d reviews and %d refusals of %d calls, want %d reviews", asked, refused, calls, maxReviews)
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
	of := r.reviews.of("alice")
	if len(of.pending) != 0 || r.reviews.known.Len() != 0 {
		t.Errorf("%d are pending, %d known", len(of.pending), r.reviews.known.Len())
	}
}
