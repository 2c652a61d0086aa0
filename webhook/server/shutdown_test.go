package server_test

import (
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/webhook/server"
)

// TestAStoppingServerStillServes: nodes go on sending connections for a while.
func TestAStoppingServerStillServes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := start(t, server.Options{ShutdownDelay: time.Minute, Clock: clock}, func(http.ResponseWriter, *http.Request) {})
	w.stop()
	for !clock.HasWaiters() || w.served.StartedChecker()(nil) == nil {
		if t.Context().Err() != nil {
			t.Fatal("a server that is to stop is ready")
		}
	}
	if err := w.serve(1); err != nil {
		t.Errorf("a server that is no longer ready: %v", err)
	}
	clock.Step(time.Minute) // Otherwise the test would not end.
}
