package contract

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

const (
	// contenders is how many callers want the lock at the same time, and turns how
	// often each of them.
	contenders = 16
	turns      = 4
)

// guarded is the resource behind the lock. It notices two holders at once.
type guarded struct {
	inside, counter atomic.Int64
	mu              sync.Mutex
	tokens          []int64
}

// enter is the work of each holder. The counter loses an increment if another holder
// increments it at the same time.
func (g *guarded) enter(token int64) {
	defer GinkgoRecover()
	defer g.inside.Add(-1)
	Expect(g.inside.Add(1)).To(Equal(int64(1)), "holders at the same time")
	count := g.counter.Load()
	g.mu.Lock()
	g.tokens = append(g.tokens, token)
	g.mu.Unlock()
	runtime.Gosched()
	g.counter.Store(count + 1)
}

func (g *guarded) expect(entries int) {
	GinkgoHelper()
	Expect(g.counter.Load()).To(Equal(int64(entries)))
	Expect(g.tokens).To(HaveLen(entries))
	Expect(slices.IsSorted(g.tokens)).To(BeTrue(), "tokens %d", g.tokens)
	Expect(slices.Compact(slices.Clone(g.tokens))).To(HaveLen(entries), "tokens %d", g.tokens)
}

func describeContention(s *subject) {
	// contend lets every contender take its turns on one of the backends.
	contend := func(ctx context.Context, backends ...lock.Backend) {
		GinkgoHelper()
		shared := &guarded{}
		var callers sync.WaitGroup
		for index := range contenders {
			backend := backends[index%len(backends)]
			callers.Go(func() {
				defer GinkgoRecover()
				for turn := range turns {
					owner := fmt.Sprintf("%s%d-%d", secret, index, turn)
					granted, err := backend.Acquire(ctx, s.Namespace, by(owner, wait(patience)))
					Expect(err).NotTo(HaveOccurred())
					shared.enter(token(granted))
					Expect(backend.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: owner})).To(Succeed())
				}
			})
		}
		callers.Wait()
		shared.expect(contenders * turns)
		s.expectFree(ctx)
	}

	It("has one holder at a time among callers that wait", func(ctx context.Context) {
		contend(ctx, s.Backend)
	})

	It("has one holder at a time among callers of two replicas", func(ctx context.Context) {
		if s.Rival == nil {
			Skip("the fixture has no rival")
		}
		contend(ctx, s.Backend, s.Rival)
	})

	It("grants a free lock to exactly one of several callers that do not wait", func(ctx context.Context) {
		var granted atomic.Int64
		var callers sync.WaitGroup
		for index := range contenders {
			backend := s.Backend
			if index%2 == 1 && s.Rival != nil {
				backend = s.Rival
			}
			callers.Go(func() {
				defer GinkgoRecover()
				_, err := backend.Acquire(ctx, s.Namespace, by(fmt.Sprint(secret, index)))
				if err == nil {
					granted.Add(1)
					return
				}
				expectRefusal(err, lock.ErrHeld)
			})
		}
		callers.Wait()
		Expect(granted.Load()).To(Equal(int64(1)))
	})

	It("gives an expired lock to exactly one of several callers that do not wait", func(ctx context.Context) {
		s.expired(ctx)
		var granted atomic.Int64
		var callers sync.WaitGroup
		for index := range contenders {
			callers.Go(func() {
				defer GinkgoRecover()
				_, err := s.acquire(ctx, by(fmt.Sprint(secret, index)))
				if err == nil {
					granted.Add(1)
					return
				}
				expectRefusal(err, lock.ErrHeld)
			})
		}
		callers.Wait()
		Expect(granted.Load()).To(Equal(int64(1)))
	})
}
