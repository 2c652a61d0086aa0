package forrst_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/test/support/pipes"
)

// The timeouts of the server are about reading and writing, not about calls.
func TestCallsOutlastTheTimeoutsOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, function("slow", func(ctx context.Context) (any, error) {
			time.Sleep(time.Hour) //nolint:forbidigo // Only the fake clock of the bubble moves.
			return nil, ctx.Err()
		}))
		listener := pipes.Listen()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.listening(listener).Start(ctx) }()
		connection := listener.Connect()
		reader := bufio.NewReader(connection)
		for range 2 {
			body := envelopeWith("slow", "", "")
			if _, err := fmt.Fprintf(connection, "POST /forrst HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("status %d, %s, %v", response.StatusCode, text, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	})
}
