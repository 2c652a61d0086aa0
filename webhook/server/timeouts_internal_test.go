package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestConnectionsThatMakeNoProgressAreClosed(t *testing.T) {
	const header = "POST /review HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
	cases := map[string]struct {
		// sent is what the client sends after the handshake; nil if it begins none.
		sent []byte
		want time.Duration
	}{
		"no handshake":      {nil, answerTimeout},
		"no review":         {[]byte{}, idleTimeout},
		"a part of one":     {[]byte(header), idleTimeout},
		"a part of a body":  {[]byte(header + "Content-Length: 100\r\n\r\n{"), reviewTimeout},
		"no further review": {[]byte(header + "Content-Length: 2\r\n\r\n{}"), idleTimeout},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			serve(t, Options{}, func(http.ResponseWriter, *http.Request) {}, func(b *bubble) {
				begun := time.Now()
				if got := b.untilClosed(test.sent).Sub(begun); got < test.want || got > test.want+time.Second {
					b.t.Errorf("closed after %s, want %s", got, test.want)
				}
			})
		})
	}
}

// untilClosed sends a part of what the server expects and returns when the server gave up.
func (b *bubble) untilClosed(sent []byte) time.Time {
	b.t.Helper()
	var client net.Conn
	if sent == nil {
		client = b.inner.Connect()
		b.t.Cleanup(func() { _ = client.Close() }) // The server has closed it.
	} else {
		secured, err := b.connect(1)
		if err != nil {
			b.t.Fatal(err)
		}
		if client = secured; len(sent) > 0 {
			if _, err := secured.Write(sent); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	_, _ = io.Copy(io.Discard, client) // It ends when the connection does, with an answer or none.
	return time.Now()
}

// A client may have made the connection for a review that another connection has taken, and keeps it for later.
func TestTheFirstReviewMayComeLate(t *testing.T) {
	serve(t, Options{}, func(http.ResponseWriter, *http.Request) {}, func(b *bubble) {
		t := b.t
		client, err := b.connect(1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(clientIdleTimeout) //nolint:forbidigo // Only the fake clock moves.
		for _, sent := range []string{"POST /review HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n", "Content-Length: 2\r\n\r\n{", "}"} {
			if _, err := client.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second) //nolint:forbidigo // As above.
		}
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatalf("the connection was closed: %v", err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("answered %s", answer.Status)
		}
	})
}

// clientIdleTimeout is how long an API server keeps a connection that it does not use.
const clientIdleTimeout = 90 * time.Second
