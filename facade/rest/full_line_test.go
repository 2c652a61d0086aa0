package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// A caller for whom there is no place in line is told which bound is reached, and for a lock which place it would have had.
func TestACallerIsToldThatTheLineIsFull(t *testing.T) {
	for bound, detail := range map[lock.LineBound]string{
		lock.LinePerLock:      "The place in line would be 8, and at most 7 callers may wait for one lock",
		lock.LinePerNamespace: "7 callers wait for locks of this namespace, which is as many as may",
		lock.LinePerHolder:    "7 calls of the caller wait for locks, which is as many as may",
	} {
		t.Run(string(bound), func(t *testing.T) {
			f := newFixture(t)
			f.locks.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error {
				return fmt.Errorf("wait at another replica: %w", &lock.LineFullError{Bound: bound, Waiting: 7})
			}})
			for _, body := range []string{waiting, ofSixty} {
				got := f.do(http.MethodPost, report, body).want(http.StatusTooManyRequests, "too-many-calls")
				if told := got.problem(); told.Detail != detail || got.header.Get("Retry-After") != "1" {
					t.Errorf("told %q and Retry-After %q, want %q", told.Detail, got.header.Get("Retry-After"), detail)
				}
			}
		})
	}
}
