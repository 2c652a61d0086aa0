package measure

import (
	"context"
	"time"
)

// WaitUntil waits until the time, or until ctx ends.
func WaitUntil(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

const (
	// idleFor is how long a process must be idle.
	idleFor = 2 * time.Second
	// idleAt is the part of a processor that it may use meanwhile.
	idleAt = 0.15
)

// AwaitIdle returns when the processes have been idle for two seconds.
func AwaitIdle(ctx context.Context, pids ...int) error {
	for {
		before, err := sumOfCPUTimes(pids)
		if err != nil {
			return err
		}
		if err := WaitUntil(ctx, time.Now().Add(idleFor)); err != nil {
			return err
		}
		after, err := sumOfCPUTimes(pids)
		if err != nil {
			return err
		}
		if float64(after-before) < idleAt*float64(idleFor)*float64(len(pids)) {
			return nil
		}
	}
}

func sumOfCPUTimes(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		spent, err := CPUTime(pid)
		if err != nil {
			return 0, err
		}
		sum += spent
	}
	return sum, nil
}
