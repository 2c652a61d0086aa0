// Package pairs makes any two calls about one grant at once, and judges their answers: every answer is true, and exactly one
// caller is told that it ended the grant.
package pairs

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// defaultRounds is how often two calls are made at once, unless the environment variable PAIR_ROUNDS says otherwise.
const defaultRounds = "2"

// Call is one of two calls about a grant G.
type Call[G any] struct {
	Name string
	Answers
	// Prepare does what comes before the call, such as showing the grant to its caller. It returns the call, which returns its
	// answer: a status, or the name of an error.
	Prepare func(ctx context.Context, held G) (call func() string)
	// GiveBack releases the lock that a call has got, which has answered with Took. Nil if the lock may stay held.
	GiveBack func(ctx context.Context, held G)
	// IsAlone says that the call is not made beside a waiting caller: it may rightly get the next grant, or end
	// it and be recorded for that.
	IsAlone bool
	// IsOnce says that the call cannot be made twice.
	IsOnce bool
}

// Direct returns a call without preparations.
func Direct[G any](call func(ctx context.Context, held G) string) func(context.Context, G) func() string {
	return func(ctx context.Context, held G) func() string {
		return func() string { return call(ctx, held) }
	}
}

// Subject is what the calls are made of.
type Subject[G any] struct {
	// Acquire acquires a lock: in each round another one, unless all of them are free at the end of their rounds.
	Acquire func(ctx context.Context, round int) G
	// Elsewhere returns the grant for the second of two calls, which may go another way, such as through another replica. Nil
	// means the same way.
	Elsewhere func(held G) G
	// Wait has another caller wait for the lock, and returns when it does. Granted fails unless that caller gets the lock, and
	// releases it. If a call hasEnded that grant, it fails unless the release is told so.
	Wait func(ctx context.Context, held G) (granted func(hasEnded bool))
	// Release releases a grant that no call has ended, and fails unless it is told so.
	Release func(ctx context.Context, held G)
	// End is called at the end of a round with the name of the call that ended the grant, or an empty name. Nil does nothing.
	End func(ctx context.Context, held G, ender string)
	// Spread bounds how much later than the other one a call begins.
	Spread time.Duration
}

// Declare declares a spec for any two of the calls, alone and while another caller waits. Suites call it while Ginkgo builds
// the tree of specs. The subject is complete when a spec runs.
func Declare[G any](subject *Subject[G], calls []Call[G]) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("PAIR_ROUNDS"), defaultRounds))
	if err != nil {
		panic(err)
	}
	declare := func(name string, first, second Call[G], hasWaiter bool) {
		It(name, func(ctx context.Context) {
			name := fnv.New64()
			_, _ = name.Write([]byte(CurrentSpecReport().FullText()))
			random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), name.Sum64()))
			for round := range rounds {
				subject.makeAtOnce(ctx, round, random, first, second, hasWaiter)
			}
		})
	}
	for index, first := range calls {
		for other, second := range calls[index:] {
			if other == 0 && first.IsOnce {
				continue
			}
			name := fmt.Sprintf("answers a %s and a %s", first.Name, second.Name)
			declare(name, first, second, false)
			if !first.IsAlone && !second.IsAlone {
				declare(name+" while another caller waits", first, second, true)
			}
		}
	}
}

// makeAtOnce makes two calls about one grant at once, and judges their answers and what becomes of the lock.
func (s *Subject[G]) makeAtOnce(ctx context.Context, round int, random *rand.Rand, first, second Call[G], hasWaiter bool) {
	GinkgoHelper()
	held := s.Acquire(ctx, round)
	elsewhere := held
	if s.Elsewhere != nil {
		elsewhere = s.Elsewhere(held)
	}
	granted := func(bool) {}
	if hasWaiter {
		granted = s.Wait(ctx, held)
	}
	calls, known := [2]Call[G]{first, second}, [2]G{held, elsewhere}
	prepared := [2]func() string{first.Prepare(ctx, held), second.Prepare(ctx, elsewhere)}
	late, later := time.Duration(random.Int64N(int64(s.Spread)+1)), random.IntN(2)
	var answers [2]string // Empty if a call fails.
	var both sync.WaitGroup
	for index, call := range prepared {
		both.Go(func() {
			defer GinkgoRecover()
			if index == later && late > 0 {
				<-time.After(late)
			}
			answers[index] = call()
		})
	}
	both.Wait()

	what := fmt.Sprintf("round %d: %s: %s; %s: %s; %s later: %s", round, first.Name, answers[0], second.Name, answers[1], calls[later].Name, late)
	told, err := judge([2]Answers{first.Answers, second.Answers}, answers, hasWaiter)
	Expect(err).NotTo(HaveOccurred(), what)
	for index, each := range calls {
		if each.Took != "" && answers[index] == each.Took && each.GiveBack != nil {
			each.GiveBack(ctx, known[index])
		}
	}
	name := ""
	if told.ender == nobody {
		s.Release(ctx, held)
	} else {
		name = calls[told.ender].Name
	}
	granted(told.isNextEnded)
	if s.End != nil {
		s.End(ctx, held, name)
	}
}
