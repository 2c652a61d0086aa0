package contract

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// outcome is the result of an acquire.
type outcome struct {
	lock *v1alpha1.Lock
	err  error
}

// caller is a running acquire. It is cancelled, and returns, before the next spec.
type caller struct {
	returned chan outcome
	cancel   context.CancelFunc
}

// call starts an acquire.
func (s *subject) call(ctx context.Context, request lock.Request) *caller {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	calling := &caller{returned: make(chan outcome, 1), cancel: cancel}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		granted, err := s.acquire(ctx, request)
		calling.returned <- outcome{granted, err}
	}()
	DeferCleanup(func(ctx SpecContext) {
		cancel()
		Eventually(ctx, ended).WithTimeout(soon).Should(BeClosed())
	})
	return calling
}

// queue starts an acquire of the held lock, and returns when the caller waits.
func (s *subject) queue(ctx context.Context, owner string) *caller {
	GinkgoHelper()
	if s.Queued == nil {
		Skip("the backend does not count its waiters")
	}
	before := s.Queued(fullKey)
	calling := s.call(ctx, by(owner, wait(patience)))
	s.expectQueued(before + 1)
	return calling
}

func (s *subject) expectQueued(callers int) {
	GinkgoHelper()
	Eventually(s.Queued).WithArguments(fullKey).WithTimeout(soon).WithPolling(poll).Should(Equal(callers))
}

// outcome waits for the acquire and returns its result.
func (c *caller) outcome() outcome {
	GinkgoHelper()
	var result outcome
	Eventually(c.returned).WithTimeout(soon).Should(Receive(&result))
	return result
}

// granted waits for the acquire and returns the lock.
func (c *caller) granted() *v1alpha1.Lock {
	GinkgoHelper()
	result := c.outcome()
	Expect(result.err).NotTo(HaveOccurred())
	return result.lock
}

// expectWaiting checks that the acquire does not return.
func (c *caller) expectWaiting() {
	GinkgoHelper()
	Consistently(c.returned).WithTimeout(quiet).WithPolling(poll).ShouldNot(Receive())
}
