package observe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/observe"
)

func TestEndOf(t *testing.T) {
	held := &lock.HeldError{Key: "lock:k"}
	cases := map[error]observe.Acquired{
		nil:  observe.Granted,
		held: observe.Held,
		fmt.Errorf("%w: %w", lock.ErrTimeout, held): observe.TimedOut,
		&lock.InvalidError{}:                        observe.Invalid,
		&lock.RefusedError{Reason: "quota"}:         observe.Refused,
		lock.ErrForbidden:                           observe.Refused,
		lock.ErrUnavailable:                         observe.Unavailable,
		context.Canceled:                            observe.Cancelled,
		context.DeadlineExceeded:                    observe.Cancelled,
		errors.New("made up"):                       observe.Unavailable,
		// An API server that did not answer until the caller's deadline.
		fmt.Errorf("%w: %w", lock.ErrUnavailable, context.DeadlineExceeded): observe.Unavailable,
	}
	for err, want := range cases {
		if got := observe.EndOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
