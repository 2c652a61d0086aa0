package forrst_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/test/support/pipes"
)

// serveInBubble serves in a bubble of synctest, where time passes when nothing else happens.
func serveInBubble(t *testing.T, test func(t *testing.T, dial func() net.Conn), functions ...forrst.Function) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		listener := pipes.Listen()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		server := newFixture(t, functions...).listening(listener)
		go func() { ended <- server.Start(ctx) }()
		test(t, func() net.Conn {
			return listener.Connect()
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// drip sends a byte each second until the connection is closed.
func drip(connection net.Conn) {
	for {
		if _, err := connection.Write([]byte("x")); err != nil {
			return
		}
		time.Sleep(time.Second) //nolint:forbidigo // Only the fake clock of the bubble moves.
	}
}

func TestSlowHeadersEndTheConnection(t *testing.T) {
	serveInBubble(t, func(t *testing.T, dial func() net.Conn) {
		t.Helper()
		connection := dial()
		start := time.Now()
		if _, err := io.WriteString(connection, "POST /forrst HTTP/1.1\r\nX: "); err != nil {
			t.Fatal(err)
		}
		drip(connection)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestSlowBodiesAreAnswered(t *testing.T) {
	serveInBubble(t, func(t *testing.T, dial func() net.Conn) {
		t.Helper()
		connection := dial()
		start := time.Now()
		if _, err := io.WriteString(connection, "POST /forrst HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var dripping sync.WaitGroup
		dripping.Go(func() { drip(connection) })
		defer dripping.Wait()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusRequestTimeout || !response.Close || !strings.Contains(string(body), `"code":"INVALID_REQUEST"`) {
			t.Errorf("status %d, closes: %t, %s, %v", response.StatusCode, response.Close, body, err)
		}
		if took := time.Since(start); took > 31*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	serveInBubble(t, func(t *testing.T, dial func() net.Conn) {
		t.Helper()
		for name, begin := range map[string]string{"from the start": "", "after a call": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"} {
			connection := dial()
			start := time.Now()
			if _, err := io.WriteString(connection, begin); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, connection); err != nil {
				t.Error(err)
			}
			took := time.Since(start)
			if took > 3*time.Minute || begin == "" && took > 10*time.Second || begin != "" && took < time.Minute {
				t.Errorf("%s: it took %v", name, took)
			}
		}
	})
}

func TestLargeHeadersAreRefused(t *testing.T) {
	for _, useHTTP2 := range []bool{false, true} {
		s := serve(t, newFixture(t).served, time.Minute)
		if useHTTP2 {
			s.useHTTP2(t)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+forrst.Path, strings.NewReader(envelopeWith(ping, "", "")))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.Repeat("t", 8<<10))
		for _, want := range []int{http.StatusOK, http.StatusRequestHeaderFieldsTooLarge} {
			response, err := s.client.Do(request.Clone(t.Context()))
			// HTTP/2 tells clients the limit, and they need not ask.
			if err != nil && (!useHTTP2 || want != http.StatusRequestHeaderFieldsTooLarge) {
				t.Fatal(err)
			}
			if err == nil {
				response.Body.Close()
				if response.StatusCode != want {
					t.Errorf("status %d, want %d", response.StatusCode, want)
				}
			}
			request.Header.Set("X", strings.Repeat("x", 16<<10))
			request.Body = io.NopCloser(strings.NewReader(envelopeWith(ping, "", "")))
		}
		s.wantEnd(t)
	}
}

// The timeouts of the server are about reading and writing, not about calls.
func TestCallsOutlastTheTimeoutsOfConnections(t *testing.T) {
	slow := function("slow", func(ctx context.Context) (any, error) {
		time.Sleep(time.Hour) //nolint:forbidigo // Only the fake clock of the bubble moves.
		return nil, ctx.Err()
	})
	for _, isHTTP2 := range []bool{false, true} {
		serveInBubble(t, func(t *testing.T, dial func() net.Conn) {
			t.Helper()
			var protocols http.Protocols
			protocols.SetHTTP1(!isHTTP2)
			protocols.SetUnencryptedHTTP2(isHTTP2)
			transport := &http.Transport{
				Protocols:   &protocols,
				DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
			}
			s := &serving{url: "http://x", client: &http.Client{Transport: transport}}
			for range 2 {
				if got := s.receive(t.Context(), envelopeWith("slow", "", "")); got.status != 200 || len(got.Errors) != 0 || (got.major == 2) != isHTTP2 {
					t.Errorf("HTTP/%d: status %d, %v, %v", got.major, got.status, got.Errors, got.err)
				}
			}
			transport.CloseIdleConnections()
		}, slow)
	}
}
