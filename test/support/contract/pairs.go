package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

// defaultRounds is how often two calls are made at once, unless the environment variable PAIR_ROUNDS says otherwise.
const defaultRounds = "2"

// pairCall is one of two calls about a grant of alice that are made at once.
type pairCall struct {
	name string
	// ends says that the call ends a grant if it succeeds.
	ends bool
	do   func(ctx context.Context, backend lock.Backend, namespace string, owner string, token int64) error
	// refusals are the errors of a call that comes after one that has ended the grant.
	refusals []error
}

// another is the owner token of a caller that does not wait.
const another = secret + "dave"

var pairCalls = []pairCall{
	{"release", true, func(ctx context.Context, backend lock.Backend, namespace, owner string, _ int64) error {
		return backend.Release(ctx, namespace, fullKey, lock.Proof{Owner: owner})
	}, []error{lock.ErrNotHeld, lock.ErrOwnerMismatch}},
	{"forced release", true, func(ctx context.Context, backend lock.Backend, namespace, _ string, _ int64) error {
		return backend.ForceRelease(ctx, namespace, fullKey, "maintenance")
	}, []error{lock.ErrNotHeld}},
	{"forced release of the grant", true, func(ctx context.Context, backend lock.Backend, namespace, _ string, token int64) error {
		return backend.ForceRelease(ctx, namespace, fullKey, "maintenance", lock.Precondition{FencingToken: token})
	}, []error{lock.ErrNotHeld}},
	{"renewal", false, func(ctx context.Context, backend lock.Backend, namespace, owner string, _ int64) error {
		_, err := backend.Renew(ctx, namespace, fullKey, lock.Proof{Owner: owner}, 0)
		return err
	}, []error{lock.ErrNotHeld, lock.ErrOwnerMismatch}},
	{"acquire", false, func(ctx context.Context, backend lock.Backend, namespace, _ string, _ int64) error {
		_, err := backend.Acquire(ctx, namespace, by(another))
		return err
	}, []error{lock.ErrHeld}},
}

// describePairs tells of any two calls at once what each of them is answered: who ends a grant is told so, and nobody else is.
func describePairs(s *subject) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("PAIR_ROUNDS"), defaultRounds))
	if err != nil {
		panic(err)
	}
	for index, first := range pairCalls {
		for _, second := range pairCalls[index:] {
			It(fmt.Sprintf("answers a %s and a %s", first.name, second.name), func(ctx context.Context) {
				for round := range rounds {
					s.makeAtOnce(ctx, round, first, second, false)
				}
			})
			// A forced release of any grant may rightly end that of the caller that waited.
			if first.name == "forced release" || second.name == "forced release" {
				continue
			}
			It(fmt.Sprintf("answers a %s and a %s while another caller waits", first.name, second.name), func(ctx context.Context) {
				for round := range rounds {
					s.makeAtOnce(ctx, round, first, second, true)
				}
			})
		}
	}
}

// makeAtOnce makes two calls about one grant at once, and judges their answers and what becomes of the lock.
func (s *subject) makeAtOnce(ctx context.Context, round int, first, second pairCall, hasWaiter bool) {
	GinkgoHelper()
	owner, next := fmt.Sprint(alice, round), fmt.Sprint(bob, round)
	number := token(s.acquired(ctx, by(owner)))
	var waiting *caller
	if hasWaiter {
		waiting = s.queue(ctx, next)
	}
	rival := s.Backend
	if s.Rival != nil && round%2 == 1 {
		rival = s.Rival
	}
	answers := make(chan error, 1)
	go func() { answers <- second.do(ctx, rival, s.Namespace, owner, number) }()
	calls := []pairCall{first, second}
	errs := []error{first.do(ctx, s.Backend, s.Namespace, owner, number), <-answers}

	ended, hasEnder, isTaken := 0, false, false
	for index, each := range calls {
		hasEnder = hasEnder || each.ends
		switch {
		case each.ends && errs[index] == nil:
			ended++
		case each.name == "acquire" && errs[index] == nil:
			Expect(isTaken).To(BeFalse(), "two callers have the lock")
			isTaken = true
		}
	}
	what := fmt.Sprintf("round %d: %s: %v; %s: %v", round, first.name, errs[0], second.name, errs[1])
	if hasEnder {
		Expect(ended).To(Equal(1), what)
	}
	for index, each := range calls {
		switch err := errs[index]; {
		case err != nil:
			Expect(slices.ContainsFunc(each.refusals, func(refusal error) bool { return errors.Is(err, refusal) })).To(BeTrue(), what)
			Expect(hasEnder || each.name == "acquire").To(BeTrue(), what)
		case each.name == "acquire":
			Expect(hasEnder).To(BeTrue(), what)
		}
	}
	if isTaken {
		s.expectHeldBy(ctx, another)
		Expect(s.release(ctx, another)).To(Succeed())
	}
	if !hasEnder {
		s.expectHeldBy(ctx, owner)
		Expect(s.release(ctx, owner)).To(Succeed())
	}
	if hasWaiter {
		waiting.granted()
		Expect(s.release(ctx, next)).To(Succeed())
	}
	s.expectFree(ctx)
}
