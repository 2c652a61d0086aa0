package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/server"
)

// lines are those of a log. It is safe for concurrent use.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) write(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, args)
}

// with returns those that have the text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// breakHTTP2 makes a connection that continues a header that was not begun, and waits until the server says
// that it goes away. It logs before that, and hangs up later.
func breakHTTP2(t *testing.T, address string) {
	t.Helper()
	const (
		sent   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x00\x09\x04\x00\x00\x00\x01"
		goAway = 7
	)
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, sent); err != nil {
		t.Fatal(err)
	}
	for header := [9]byte{}; header[3] != goAway; {
		if _, err := io.ReadFull(connection, header[:]); err != nil {
			t.Fatal(err)
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, connection, length); err != nil {
			t.Fatal(err)
		}
	}
}

// What the server says of connections is bounded, and says how much of it there was.
func TestConnectionsThatBreakTheProtocolDoNotFillTheLog(t *testing.T) {
	const (
		// logged is how many lines there are at once.
		logged, broken = 10, 50
		fault          = "http2: server connection"
	)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	served, err := server.New(server.Options{Listener: listener, Clock: clock, Logger: funcr.New(log.write, funcr.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- served.Start(ctx) }()
	connect := func() { breakHTTP2(t, listener.Addr().String()) }
	for range broken {
		connect()
	}
	if found := log.with(fault); len(found) != logged {
		t.Errorf("%d lines of %d broken connections, want %d:\n%s", len(found), broken, logged, strings.Join(found, "\n"))
	}
	clock.Step(10 * time.Second)
	for range broken {
		connect()
	}
	found := log.with(fault)
	if omitted := fmt.Sprintf(`"omitted"=%d`, broken-logged); len(found) != logged+1 || !strings.Contains(found[logged], omitted) || !strings.Contains(found[logged], "PROTOCOL_ERROR") {
		t.Errorf("after a while the log has\n%s\nwant one more, with %s", strings.Join(found, "\n"), omitted)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if found, omitted := log.with(fault), fmt.Sprintf(`"omitted"=%d`, broken-1); len(found) != logged+2 || !strings.HasSuffix(found[logged+1], omitted) {
		t.Errorf("at the end the log has\n%s\nwant one more, with %s", strings.Join(found, "\n"), omitted)
	}
}
