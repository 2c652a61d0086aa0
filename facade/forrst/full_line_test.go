package forrst_test

import (
	"context"
	"fmt"
	"testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// A caller for whom there is no place in line is told which bound is reached, and for a lock which place it would have had.
func TestACallerIsToldThatTheLineIsFull(t *testing.T) {
	for bound, message := range map[lock.LineBound]string{
		lock.LinePerLock:      "The place in line would be 8, and at most 7 callers may wait for one lock",
		lock.LinePerNamespace: "7 callers wait for locks of this namespace, which is as many as may",
		lock.LinePerHolder:    "7 calls of the caller wait for locks, which is as many as may",
	} {
		for kind, body := range blocking {
			t.Run(kind+", per "+string(bound), func(t *testing.T) {
				f := newFixture(t)
				f.before[locktest.Acquire] = func(context.Context) error {
					return fmt.Errorf("wait at another replica: %w", &lock.LineFullError{Bound: bound, Waiting: 7})
				}
				got := f.post(body)
				f.wantProblems(got, 429, "RATE_LIMITED")
				if told := got.Errors[0]; told.Message != message || string(told.Details) != `{"retry_after":{"value":1,"unit":"second"}}` {
					t.Errorf("told %q, %s, want %q", told.Message, told.Details, message)
				}
			})
		}
	}
}
