package scenario

import (
	"context"
	"fmt"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

const (
	// expireWithin is the time in which the locks of manyExpire expire, one after the other; less in a trial.
	expireWithin = time.Minute
	// manyReapTime bounds the wait for their deletion.
	manyReapTime = 20 * time.Minute
)

// manyExpire measures how far the reaper falls behind when very many locks expire within a minute.
func manyExpire(ctx context.Context, l *lab.Lab, r *report.Report) error {
	stored, err := newStoredLocks(ctx, l, contender.TTL)
	if err != nil {
		return err
	}
	count := min(boundedLocks, l.Options.LiveLocks)
	within := time.Duration(min(1, l.Options.Effort) * float64(expireWithin))
	// Two processors store more than a thousand locks per second, with all that watches them.
	first := time.Now().Add(settleFor + time.Duration(count)*time.Second/1000)
	err = stored.write(ctx, "many", 0, count, func(number int) time.Time {
		return first.Add(within * time.Duration(number) / time.Duration(count))
	})
	if err != nil {
		return err
	}
	if err := measure.AwaitIdle(ctx, l.Usage.Pids[measure.APIServerProgram], l.Usage.Pids[measure.OperatorProgram]); err != nil {
		return err
	}
	if time.Now().After(first) {
		return fmt.Errorf("this machine is too slow to store %d locks before they expire", count)
	}
	reaped, err := observeDeletions(ctx, l, "many", count, manyReapTime, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	behind := max(0, float64(count)/reaped.perSecond-within.Seconds())
	r.Note(fmt.Sprintf("%d locks expire within %s", count, within), "reaper",
		append(reaped.figures(), report.Noted("last deletion behind the last expiry", measure.Single(behind, reaped.window), " s"))...)
	return nil
}
