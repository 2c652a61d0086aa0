package outage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock"
)

func startThree(ctx context.Context) (replicas [3]replica) {
	GinkgoHelper()
	for number := range replicas {
		replicas[number] = startReplica(ctx, operatorConfig())
	}
	return replicas
}

// stall stalls the watches of all until the spec ends.
func stall(replicas [3]replica) {
	for _, each := range replicas {
		each.proxy.stall()
		DeferCleanup(each.proxy.flow)
	}
}

// turns knows for how long each lock was free at most while callers waited for it, which they do
// all the time.
type turns struct {
	// work is how long a caller holds a lock.
	work time.Duration

	mu      sync.Mutex
	freed   map[string]time.Time
	longest time.Duration
	taken   int
	// unmeasured counts releases that the API server did not answer.
	unmeasured int
}

func newTurns(work time.Duration) *turns { return &turns{work: work, freed: map[string]time.Time{}} }

func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// take waits for a lock through one replica and releases it through another.
func (t *turns) take(ctx context.Context, through, releaser replica, key, owner string) {
	err := take(ctx, through, key, owner, lock.WaitForever)
	if errors.Is(err, context.Canceled) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	t.mu.Lock()
	if freed, ok := t.freed[key]; ok {
		t.longest = max(t.longest, time.Since(freed))
	}
	delete(t.freed, key)
	t.taken++
	t.mu.Unlock()
	Eventually(time.After(t.work)).WithTimeout(time.Minute).Should(Receive())
	t.mu.Lock()
	t.freed[key] = time.Now()
	t.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	for err = give(ctx, releaser, key, owner); errors.Is(err, lock.ErrUnavailable); err = give(ctx, releaser, key, owner) {
		t.mu.Lock()
		delete(t.freed, key) // It is not known when it became free: the request did not get through.
		t.unmeasured++
		t.mu.Unlock()
	}
	if !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// contend has so many callers take turns at so many locks until the function that it returns is called.
func (t *turns) contend(ctx context.Context, replicas [3]replica, waiters, keys int) (stop func()) {
	waiting, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			defer GinkgoRecover()
			for waiting.Err() == nil {
				t.take(waiting, replicas[i%3], replicas[(i/3)%3], fmt.Sprintf("key-%d", i%keys), fmt.Sprint(i))
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
