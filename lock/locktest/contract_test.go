package locktest_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/contract"
)

func TestContract(t *testing.T) {
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	suite.RandomSeed = 1 // The order is drawn anew otherwise.
	RunSpecs(t, "A backend in memory", suite, reporter)
}

// On the real clock, the backend has no code of its own, and the specs would wait.
var _ = contract.DescribeBackend("on a clock that is stepped", func(context.Context) contract.Fixture {
	clock := clocktesting.NewFakeClock(noon)
	backend := locktest.New(locktest.WithClock(clock))
	return contract.Fixture{
		Backend:   backend,
		Forbidden: locktest.New(locktest.WithHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return lock.ErrForbidden }})),
		Namespace: "billing",
		Elsewhere: "payments",
		Holder:    locktest.DefaultHolder,
		Clock:     clock,
		Queued:    func(key v1alpha1.FullKey) int { return backend.Waiting("billing", key) },
	}
})
