package forrst

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/server"
)

// A success that comes too late is taken back also if it came about in the very moment
// in which it became too late, which no caller can bring about on purpose.
func TestASuccessThatTheCallerDoesNotLearnOfIsUndone(t *testing.T) {
	undone := 0
	newCall := func() (*call, Invocation) {
		c := &call{Handler: &Handler{config: Config{Clock: clock.RealClock{}}}, Call: server.Call{Caller: access.Caller{User: &user.DefaultInfo{Name: access.Anonymous}}, Start: time.Now()}}
		c.cancellations = newCancellations(clock.RealClock{})
		return c, func(ctx context.Context) (any, error) {
			c.undo = func(context.Context) { undone++ }
			<-ctx.Done()
			return true, nil
		}
	}

	late, invoke := newCall()
	if result, err := late.invokeWithin(t.Context(), &callDeadline{length: 50 * time.Millisecond}, invoke); result != nil || err == nil || undone != 1 {
		t.Errorf("after the deadline: %v, %v, undone %d times", result, err, undone)
	}

	cancelled, invoke := newCall()
	ended := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := cancelled.invokeCancellable(t.Context(), "t", func(ctx context.Context) (any, error) {
			close(begun)
			return invoke(ctx)
		})
		ended <- err
	}()
	<-begun
	if _, isCancelled := cancelled.cancellations.cancel(cancellationKey{access.Anonymous, "t"}); !isCancelled {
		t.Error("not cancelled")
	}
	if err := <-ended; err == nil || undone != 2 {
		t.Errorf("after the cancellation: %v, undone %d times", err, undone)
	}
}

func TestFewCancelledTokensAreRemembered(t *testing.T) {
	c := newCancellations(clock.RealClock{})
	for i := range 3 * maxCancelled {
		key := cancellationKey{token: string(rune(i))}
		entry := c.begin(key, func() {})
		if entry == nil {
			continue // The same rune stands for several numbers.
		}
		if _, isCancelled := c.cancel(key); !isCancelled {
			t.Fatal("not cancelled")
		}
		c.end(key, entry)
	}
	if len(c.cancelled) > maxCancelled || len(c.isCancelled) != len(c.cancelled) || len(c.running) != 0 {
		t.Errorf("%d and %d remembered, %d running", len(c.cancelled), len(c.isCancelled), len(c.running))
	}
}
