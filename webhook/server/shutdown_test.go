package server_test

import (
	"net/http"
	"net/http/httptrace"
	"runtime"
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

// TestAStoppingServerWaitsForItsClients: a review may be on its way on a connection that is idle at the server.
func TestAStoppingServerWaitsForItsClients(t *testing.T) {
	w := start(t, server.Options{DrainTimeout: time.Hour, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}, ok)
	client := w.client(1)
	if _, _, err := w.post(client, strings.NewReader("{}")); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.awaitUnready()
	var isReused bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { isReused = got.Reused }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("a review that a stopping server got: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close || !isReused {
		t.Errorf("answered %s, closing the connection: %t, on the former connection: %t", response.Status, response.Close, isReused)
	}
	// The server ends now, since it has no connection. The clock stands still.
}

func TestAStoppingServerDoesNotWaitForLonger(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := start(t, server.Options{DrainTimeout: time.Minute, Clock: clock}, ok)
	if _, _, err := w.post(w.client(1), strings.NewReader("{}")); err != nil { // It keeps its connection until the test ends.
		t.Fatal(err)
	}
	w.stop()
	w.awaitUnready()
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(time.Minute) // Otherwise the test would not end.
}

// TestAServerThatIsNotDrainedEnds: what it judges reviews by has ended with its context.
func TestAServerThatIsNotDrainedEnds(t *testing.T) {
	w := start(t, server.Options{ShutdownDelay: time.Hour, DrainTimeout: time.Hour, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}, ok)
	if _, _, err := w.post(w.client(1), strings.NewReader("{}")); err != nil { // It keeps its connection until the test ends.
		t.Fatal(err)
	}
	// The server ends with the test. The clock stands still.
}

// TestAServerThatEndsIsNotReady: it accepts no connection while it answers its last reviews.
func TestAServerThatEndsIsNotReady(t *testing.T) {
	begun, done := make(chan struct{}), make(chan struct{})
	w := start(t, server.Options{}, func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-done
	})
	answered := make(chan error, 1)
	go func() {
		_, _, err := w.post(w.client(1), strings.NewReader("{}"))
		answered <- err
	}()
	<-begun
	w.end()
	w.awaitUnready()
	close(done)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
