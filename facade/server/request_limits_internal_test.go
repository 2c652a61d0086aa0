package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/utils/clock"
)

// TestRequestsAreLimitedLikeConnections serves requests of connections that each have many, as over HTTP/2,
// until the test lets them end.
func TestRequestsAreLimitedLikeConnections(t *testing.T) {
	b := newBounded(t, 4, 2)
	begun, end := make(chan struct{}), make(chan struct{})
	handler := b.limitRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	}))
	serve := func(from *connection) (aborted any) {
		defer func() { aborted = recover() }()
		request := httptest.NewRequestWithContext(withConnection(t.Context(), from), http.MethodGet, "/", http.NoBody)
		handler.ServeHTTP(httptest.NewRecorder(), request)
		return nil
	}
	// The first address has two requests and, while one of them waits, a third.
	one, another := b.open("192.0.2.1:1"), b.open("192.0.2.2:1")
	var running sync.WaitGroup
	begin := func(from *connection) {
		running.Go(func() {
			if aborted := serve(from); aborted != nil {
				t.Errorf("aborted with %v", aborted)
			}
		})
		<-begun
	}
	begin(one)
	begin(one)
	if aborted := serve(one); aborted != http.ErrAbortHandler { //nolint:errorlint // a panic is compared like this
		t.Errorf("beyond the share of an address: %v", aborted)
	}
	one.BeginWait()
	begin(one)
	one.EndWait()
	begin(another)
	if aborted := serve(another); aborted != http.ErrAbortHandler { //nolint:errorlint // a panic is compared like this
		t.Errorf("beyond the limit: %v", aborted)
	}
	close(end)
	running.Wait()
	go func() { <-begun }()
	if aborted := serve(one); aborted != nil {
		t.Errorf("when the others have ended: %v", aborted)
	}
	if len(b.requests) > 0 || b.running > 0 {
		t.Errorf("%d requests are still counted, of %d addresses", b.running, len(b.requests))
	}
}

// http2Client sends requests over HTTP/2 as no well-behaved client does.
type http2Client struct {
	*http2.Framer
	// out is what was written and not sent yet.
	out     bytes.Buffer
	conn    net.Conn
	header  bytes.Buffer
	encoder *hpack.Encoder
}

// dialHTTP2 serves the handler, and returns a client with the settings.
func dialHTTP2(t *testing.T, open *connections, handler http.HandlerFunc, settings ...http2.Setting) *http2Client {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newHTTPServer(t.Context(), open.limitRequests(handler), nil, open, logr.ToSlogHandler(testr.New(t)))
	go func() { _ = server.Serve(open.limit(inner)) }()
	t.Cleanup(func() { _ = server.Close() })
	c := &http2Client{}
	if c.conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	_ = c.conn.SetDeadline(time.Now().Add(30 * time.Second))
	c.encoder, c.Framer = hpack.NewEncoder(&c.header), http2.NewFramer(&c.out, c.conn)
	c.out.WriteString(http2.ClientPreface)
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// request writes a request.
func (c *http2Client) request(stream uint32) error {
	c.header.Reset()
	return errors.Join(
		c.encoder.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"}), c.encoder.WriteField(hpack.HeaderField{Name: ":scheme", Value: "http"}),
		c.encoder.WriteField(hpack.HeaderField{Name: ":authority", Value: "a"}), c.encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/"}),
		c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.header.Bytes(), EndStream: true, EndHeaders: true}))
}

// send sends what was written.
func (c *http2Client) send() error {
	_, err := c.out.WriteTo(c.conn)
	return err
}

// TestAConnectionWhoseRequestsAreResetEnds resets each request in the segment in which it is sent, until the
// server ends the connection.
func TestAConnectionWhoseRequestsAreResetEnds(t *testing.T) {
	var served atomic.Int64
	client := dialHTTP2(t, newConnections(100, 100, clock.RealClock{}), func(http.ResponseWriter, *http.Request) { served.Add(1) })
	isEnded := make(chan bool, 1)
	go func() {
		for {
			frame, err := client.ReadFrame()
			if _, isGoAway := frame.(*http2.GoAwayFrame); isGoAway || err != nil {
				isEnded <- isGoAway
				return
			}
		}
	}()
	stream := uint32(1)
	for len(isEnded) == 0 {
		for range 50 {
			if err := errors.Join(client.request(stream), client.WriteRSTStream(stream, http2.ErrCodeCancel)); err != nil {
				t.Fatal(err)
			}
			stream += 2
		}
		if client.send() != nil {
			break // The connection has ended.
		}
	}
	if !<-isEnded {
		t.Errorf("no GOAWAY after %d requests, %d of them served", stream/2, served.Load())
	}
}

// TestAnAnswerThatIsNotTakenCounts sends requests over one connection whose client has no room for answers,
// however short they are.
func TestAnAnswerThatIsNotTakenCounts(t *testing.T) {
	const most, sent = 3, 5
	client := dialHTTP2(t, newConnections(100, most, clock.RealClock{}), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") },
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for number := range uint32(sent) {
		if err := client.request(2*number + 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.send(); err != nil {
		t.Fatal(err)
	}
	var answered, refused int
	for answered+refused < sent {
		frame, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.RSTStreamFrame:
			refused++
		}
	}
	if answered != most || refused != sent-most {
		t.Errorf("%d answers are begun, and %d requests refused", answered, refused)
	}
}
