package server_test

import (
	"net/http"
	"strings"
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := w.client(1).Do(request)
	if err != nil {
		t.Fatalf("a server that is no longer ready: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("a server that is no longer ready answers %s, closing the connection: %t", response.Status, response.Close)
	}
	clock.Step(time.Minute) // Otherwise the test would not end.
}
