package locktest_test

import (
	"context"
	"testing"
	"time"

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
	RunSpecs(t, "A backend in memory")
}

var (
	_ = contract.DescribeBackend("on a clock that is stepped", func(context.Context) contract.Fixture {
		clock := clocktesting.NewFakeClock(noon)
		fixture := inMemory(locktest.WithClock(clock))
		fixture.Clock = clock
		return fixture
	})

	_ = contract.DescribeBackend("on the real clock", func(context.Context) contract.Fixture { return inMemory() })
)

func inMemory(options ...locktest.Option) contract.Fixture {
	backend := locktest.New(options...)
	return contract.Fixture{
		Backend:   backend,
		Forbidden: locktest.New(locktest.WithHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return lock.ErrForbidden }})),
		Namespace: "billing",
		Elsewhere: "payments",
		Holder:    locktest.DefaultHolder,
		ShortTTL:  400 * time.Millisecond,
		Queued:    func(key v1alpha1.FullKey) int { return backend.Waiting("billing", key) },
	}
}
