package contract

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// fenced are locks whose receivers accept no smaller number than the largest that they have seen.
type fenced struct {
	mu   sync.Mutex
	held map[v1alpha1.FullKey]bool
	seen map[v1alpha1.FullKey]int64
	// count is how many sets were held.
	count int
}

// enter fails if one of the locks is held, or does not accept the number of the set.
func (f *fenced) enter(held *lock.HeldAll) {
	GinkgoHelper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	for _, each := range held.Locks() {
		Expect(f.held[each.Key()]).To(BeFalse(), "two hold %s", each)
		Expect(held.FencingToken()).To(BeNumerically(">", f.seen[each.Key()]), each.String())
		f.held[each.Key()], f.seen[each.Key()] = true, held.FencingToken()
	}
}

func (f *fenced) leave(held *lock.HeldAll) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, each := range held.Locks() {
		f.held[each.Key()] = false
	}
}

// describeTogether declares the specs of several locks at once.
func describeTogether(s *subject) {
	const rounds = 2
	sets := [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"a", "b", "c"}}

	DescribeTable("grants crossing sets to one caller after the other", func(ctx context.Context, options ...lock.Option) {
		receivers := &fenced{held: map[v1alpha1.FullKey]bool{}, seen: map[v1alpha1.FullKey]int64{}}
		backends := []lock.Backend{s.Backend, s.Backend}
		if s.Rival != nil {
			backends[1] = s.Rival
		}
		var callers sync.WaitGroup
		for index, keys := range sets {
			callers.Go(func() {
				defer GinkgoRecover()
				client := lock.NewClient(backends[index%2], s.Namespace, lock.WithTTL(long))
				for range rounds {
					Expect(client.DoAll(ctx, keys, func(ctx context.Context, held *lock.HeldAll) error {
						receivers.enter(held)
						defer receivers.leave(held)
						Expect(held.Locks()[0].Owns(ctx)).To(BeTrue())
						return nil
					}, options...)).To(Succeed())
				}
			})
		}
		callers.Wait()
		Expect(receivers.count).To(Equal(rounds * len(sets)))
		Expect(s.Backend.List(ctx, s.Namespace, lock.Filter{})).To(BeEmpty())
	},
		Entry("that may keep a lock while they wait for the next"),
		Entry("that keep nothing while they wait", lock.WithoutHoldAndWait()),
	)
}
