package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/pairs"
)

// grantOfAlice is a grant that two calls are about.
type grantOfAlice struct {
	// backend is the one that the call goes to.
	backend      lock.Backend
	owner        string
	fencingToken int64
	round        int
}

// another is the owner token of a caller that does not wait.
const another = secret + "dave"

// succeeded is the answer of a call without an error.
const succeeded = "<nil>"

// answerOf returns the name of an error.
func answerOf(err error) string {
	for _, each := range []error{lock.ErrNotHeld, lock.ErrOwnerMismatch, lock.ErrHeld} {
		if errors.Is(err, each) {
			return each.Error()
		}
	}
	return fmt.Sprintf("%v", err)
}

// describePairs tells of any two calls at once what each of them is answered: who ends a grant is told so, and nobody else is.
func describePairs(s *subject) {
	var (
		free     = lock.ErrNotHeld.Error()
		released = pairs.Answers{Ended: succeeded, Others: []string{free, lock.ErrOwnerMismatch.Error()}}
		forced   = pairs.Answers{Ended: succeeded, Others: []string{free}}
	)
	call := func(call func(ctx context.Context, backend lock.Backend, held grantOfAlice) error) func(context.Context, grantOfAlice) func() string {
		return pairs.Direct(func(ctx context.Context, held grantOfAlice) string {
			return answerOf(call(ctx, held.backend, held))
		})
	}
	pairs.Declare(s.pairs(), []pairs.Call[grantOfAlice]{
		{Name: "release", Answers: released, Prepare: call(func(ctx context.Context, backend lock.Backend, held grantOfAlice) error {
			return backend.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: held.owner})
		})},
		{Name: "release of the grant", Answers: released, Prepare: call(func(ctx context.Context, backend lock.Backend, held grantOfAlice) error {
			return backend.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: held.owner, FencingToken: held.fencingToken})
		})},
		{Name: "forced release", Answers: pairs.Answers{Ended: succeeded, Others: []string{free}, EndsNext: true}, Prepare: call(func(ctx context.Context, backend lock.Backend, _ grantOfAlice) error {
			return backend.ForceRelease(ctx, s.Namespace, fullKey, "maintenance")
		})},
		{Name: "forced release of the grant", Answers: forced, Prepare: call(func(ctx context.Context, backend lock.Backend, held grantOfAlice) error {
			return backend.ForceRelease(ctx, s.Namespace, fullKey, "disk lost", lock.Precondition{FencingToken: held.fencingToken})
		})},
		{
			Name: "renewal", Answers: pairs.Answers{Others: []string{succeeded, free, lock.ErrOwnerMismatch.Error()}},
			Prepare: call(func(ctx context.Context, backend lock.Backend, held grantOfAlice) error {
				_, err := backend.Renew(ctx, s.Namespace, fullKey, lock.Proof{Owner: held.owner}, 0)
				return err
			}),
		},
		{
			Name: "acquire", Answers: pairs.Answers{Took: succeeded, Others: []string{lock.ErrHeld.Error()}},
			Prepare: call(func(ctx context.Context, backend lock.Backend, _ grantOfAlice) error {
				_, err := backend.Acquire(ctx, s.Namespace, by(another))
				return err
			}),
			GiveBack: func(ctx context.Context, _ grantOfAlice) {
				s.expectHeldBy(ctx, another)
				Expect(s.release(ctx, another)).To(Succeed())
			},
		},
		{
			Name: "repeated acquire", Answers: pairs.Answers{Took: succeeded, Others: []string{lock.ErrHeld.Error()}},
			Prepare: call(func(ctx context.Context, backend lock.Backend, held grantOfAlice) error {
				_, err := backend.Acquire(ctx, s.Namespace, by(held.owner))
				return err
			}),
			GiveBack: func(ctx context.Context, held grantOfAlice) {
				s.expectHeldBy(ctx, held.owner)
				Expect(s.release(ctx, held.owner)).To(Succeed())
			},
		},
	})
}

// pairs returns what pairs of calls are made of.
func (s *subject) pairs() *pairs.Subject[grantOfAlice] {
	return &pairs.Subject[grantOfAlice]{
		Acquire: func(ctx context.Context, round int) grantOfAlice {
			owner := fmt.Sprint(alice, round)
			return grantOfAlice{s.Backend, owner, token(s.acquired(ctx, by(owner))), round}
		},
		Elsewhere: func(held grantOfAlice) grantOfAlice {
			if s.Rival != nil && held.round%2 == 1 {
				held.backend = s.Rival
			}
			return held
		},
		Wait: func(ctx context.Context, held grantOfAlice) func(bool) {
			next := fmt.Sprint(bob, held.round)
			waiting := s.queue(ctx, next)
			return func(hasEnded bool) {
				waiting.granted()
				if hasEnded {
					expectRefusal(s.release(ctx, next), lock.ErrNotHeld)
					return
				}
				Expect(s.release(ctx, next)).To(Succeed())
			}
		},
		Release: func(ctx context.Context, held grantOfAlice) {
			s.expectHeldBy(ctx, held.owner)
			Expect(s.release(ctx, held.owner)).To(Succeed())
		},
		End:    func(ctx context.Context, _ grantOfAlice, _ string) { s.expectFree(ctx) },
		Spread: 5 * time.Millisecond,
	}
}
