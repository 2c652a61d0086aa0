package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
)

// http2Client sends requests over HTTP/2 as no well-behaved client does.
type http2Client struct {
	*http2.Framer
	// out is what was written and not sent yet.
	out     bytes.Buffer
	conn    net.Conn
	header  bytes.Buffer
	encoder *hpack.Encoder
}

// serveLimited serves the handler, and returns the address.
func serveLimited(t *testing.T, bounds *requests, handler http.HandlerFunc) string {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newHTTPServer(t.Context(), bounds.limit(handler, nil), nil)
	listener.Track(server, testr.New(t))
	go func() { _ = server.Serve(listener.Limit(inner, listener.Options{Max: 100})) }()
	t.Cleanup(func() { _ = server.Close() })
	return inner.Addr().String()
}

// dialHTTP2 returns a client with the settings, from an address of loopback.
func dialHTTP2(t *testing.T, from, address string, settings ...http2.Setting) *http2Client {
	t.Helper()
	c := &http2Client{}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var err error
	if c.conn, err = dialer.DialContext(t.Context(), "tcp", address); err != nil {
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

// request writes a request, with more fields of the header if there are any.
func (c *http2Client) request(stream uint32, fields ...hpack.HeaderField) error {
	c.header.Reset()
	err := errors.Join(
		c.encoder.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"}), c.encoder.WriteField(hpack.HeaderField{Name: ":scheme", Value: "http"}),
		c.encoder.WriteField(hpack.HeaderField{Name: ":authority", Value: "a"}), c.encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/"}))
	for _, field := range fields {
		err = errors.Join(err, c.encoder.WriteField(field))
	}
	return errors.Join(err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.header.Bytes(), EndStream: true, EndHeaders: true}))
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
	address := serveLimited(t, newRequests(100, 100, newLimiter(t, limits.Limits{}), clock.RealClock{}), func(http.ResponseWriter, *http.Request) { served.Add(1) })
	client := dialHTTP2(t, "127.0.0.1", address)
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

// withoutRoom is the setting of a client that takes no answers.
var withoutRoom = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

// short are the answers of some tests.
func short(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "short") }

// stuck opens a connection with requests whose answers are not taken, and waits until they are begun.
func stuck(t *testing.T, from, address string, requests int, fields ...hpack.HeaderField) *http2Client {
	t.Helper()
	client := dialHTTP2(t, from, address, withoutRoom)
	for number := range requests {
		if err := client.request(uint32(2*number+1), fields...); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.send(); err != nil {
		t.Fatal(err)
	}
	for begun := 0; begun < requests; {
		frame, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := frame.(*http2.HeadersFrame); ok {
			begun++
		}
	}
	return client
}

// wantEnd reads until the connection has ended.
func (c *http2Client) wantEnd(t *testing.T) {
	t.Helper()
	for {
		_, err := c.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection is still open")
		}
		if err != nil {
			return
		}
	}
}

// get returns the status of an answer to a client that takes it, over a connection of its own.
func get(t *testing.T, from, address string, header http.Header) int {
	t.Helper()
	transport := &http.Transport{
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		DisableKeepAlives: true,
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		t.Errorf("from %s: %v", from, err)
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestAnswersThatAreNotTakenGiveWay holds the share of a network, or that of all, by requests whose client
// has no room for answers, however short they are.
func TestAnswersThatAreNotTakenGiveWay(t *testing.T) {
	for name, froms := range map[string][]string{
		"of one address":  {"127.0.0.1"},
		"of all together": {"127.0.0.1", "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakeClock(time.Now())
			bounds := newRequests(100, 100, newLimiter(t, limits.Limits{}), now)
			bounds.maxUnauthenticated, bounds.maxUnauthenticatedPerNetwork = 6, 6/len(froms)
			address := serveLimited(t, bounds, short)
			var hostile []*http2Client
			for _, from := range froms {
				hostile = append(hostile, stuck(t, from, address, bounds.maxUnauthenticatedPerNetwork))
			}
			now.Step(unauthenticatedGrace)
			for _, from := range []string{"127.0.0.1", "127.0.0.3"} {
				if status := get(t, from, address, nil); status != http.StatusOK {
					t.Errorf("a client at %s is answered %d", from, status)
				}
			}
			hostile[0].wantEnd(t)
			if bounds.endedForOthers() == 0 {
				t.Error("no request was ended")
			}
		})
	}
}

// TestAStreamOfASharedConnectionIsReset has a proxy whose clients take answers, all but one.
func TestAStreamOfASharedConnectionIsReset(t *testing.T) {
	bounds := newRequests(100, 100, newLimiter(t, limits.Limits{}), clock.RealClock{})
	bounds.maxUnauthenticated = 2
	address := serveLimited(t, bounds, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			listener.Of(r.Context()).Hold(true)()
		}
		short(w, r)
	})
	proxy := stuck(t, "127.0.0.1", address, 2)
	if status := get(t, "127.0.0.2", address, nil); status != http.StatusOK {
		t.Errorf("another client is answered %d", status)
	}
	for {
		frame, err := proxy.ReadFrame()
		if err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok { // The streams begin in any order.
			return
		}
	}
}

func TestAStreamThatCannotBeResetEndsWithItsConnection(t *testing.T) {
	b := newBounded(t)
	b.maxUnauthenticated = 2
	shared, resets := b.openProven(honest), &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	for range 2 {
		b.begin(shared, resets)
	}
	of := b.open(hostile)
	for range 2 {
		if b.begin(of, nil) == nil {
			t.Error("no request of another network was begun")
		}
		b.clock.Step(unauthenticatedGrace)
	}
	if len(resets.deadlines) != 2 || isClosed(shared) {
		t.Fatalf("%d were asked to end", len(resets.deadlines))
	}
	if b.begin(b.open("192.0.2.3:1"), nil) != nil {
		t.Error("one more was begun while so many end")
	}
	if !isClosed(shared) {
		t.Error("a request that does not end keeps its connection")
	}
	if ended := b.endedForOthers(); ended != 2 {
		t.Errorf("%d requests are counted as ended, want 2", ended)
	}
}

// TestRequestsWithoutACallerTakeNoPlacesOfOthers has requests of both kinds, as many as there may be. Those of callers have the
// limits of calls from their authentication to the end of their answers, whatever they ask for.
func TestRequestsWithoutACallerTakeNoPlacesOfOthers(t *testing.T) {
	b := newBounded(t)
	b.limiter = newLimiter(t, limits.Limits{InFlight: 6, Shares: 3})
	b.maxUnauthenticated = 3
	of := b.open(hostile)
	var authenticated []*request
	authenticate := func(name string) error {
		t.Helper()
		call := b.begin(of, nil)
		if call == nil {
			t.Fatal("no place for a request")
		}
		_, err := call.authenticate(limits.CallerOf(&http.Request{}, name))
		if err != nil {
			call.finish()
			return err
		}
		authenticated = append(authenticated, call)
		return nil
	}
	for _, each := range []struct {
		name, limit string
	}{
		{"system:serviceaccount:shop:a", ""}, {"system:serviceaccount:shop:a", ""}, {"system:serviceaccount:shop:a", "in_flight_per_caller"},
		{"system:serviceaccount:shop:b", ""}, {"system:serviceaccount:shop:b", ""}, {"system:serviceaccount:shop:c", "in_flight_per_namespace"},
		{"alice", ""}, {"alice", ""}, {"bob", "in_flight"},
	} {
		err := authenticate(each.name)
		if refused, ok := errors.AsType[*limits.Error](err); ok != (each.limit != "") || ok && refused.Limit != each.limit {
			t.Errorf("%s: %v, want %q", each.name, err, each.limit)
		}
	}
	if b.unauthenticated.Len() != 0 || b.limiter.Counts().Running != 6 {
		t.Errorf("%d are authenticated, %d are not", b.limiter.Counts().Running, b.unauthenticated.Len())
	}
	for _, each := range authenticated {
		each.finish()
	}
	if b.limiter.Counts().Running != 0 || b.unauthenticated.Len() != 0 {
		t.Errorf("something is left: %+v", b.requests)
	}
}

// TestARequestKeepsItsPlaceForAMomentBesideItsEquals lets many clients come back at once.
func TestARequestKeepsItsPlaceForAMomentBesideItsEquals(t *testing.T) {
	b := newBounded(t)
	b.maxUnauthenticated = 2
	first, second := b.open(honest), b.open("192.0.2.3:1")
	b.begin(first, nil)
	b.begin(second, nil)
	if b.begin(b.open(hostile), nil) != nil || isClosed(first) {
		t.Error("another request was begun")
	}
	b.clock.Step(unauthenticatedGrace)
	if b.begin(b.open(hostile), nil) == nil {
		t.Error("no other request was begun")
	}
	if !isClosed(first) || isClosed(second) {
		t.Error("the oldest was not ended")
	}
}

// TestANetworkWithManyRequestsGivesWay fills the share from two networks, as with many invalid tokens while these are reviewed.
func TestANetworkWithManyRequestsGivesWay(t *testing.T) {
	b := newBounded(t)
	b.maxUnauthenticated, b.maxUnauthenticatedPerNetwork = 8, 4
	crowd, other := b.open(hostile), b.open("192.0.2.3:1")
	for range 4 {
		b.begin(crowd, nil)
		b.begin(other, nil)
	}
	if b.begin(crowd, nil) != nil {
		t.Error("another request of the same network was begun")
	}
	of := b.open(honest)
	for range 2 {
		if b.begin(of, nil) == nil {
			t.Error("no request of another network was begun")
		}
	}
	if !isClosed(crowd) || isClosed(of) {
		t.Error("the network with most gives no way")
	}
}

func TestRequestsThatEndSlowlyAreBounded(t *testing.T) {
	b := newBounded(t)
	b.maxUnauthenticated = 3
	begun := 0
	for range 20 {
		if b.begin(b.open(hostile), nil) != nil {
			begun++
		}
		b.clock.Step(unauthenticatedGrace)
	}
	if begun != 6 {
		t.Errorf("%d requests were begun", begun)
	}
}

func TestManyHeaderFieldsAreRefused(t *testing.T) {
	address := serveLimited(t, newRequests(100, 100, newLimiter(t, limits.Limits{}), clock.RealClock{}), short)
	for fields, want := range map[int]int{maxHeaderFields - 10: http.StatusOK, maxHeaderFields + 1: http.StatusRequestHeaderFieldsTooLarge} {
		header := http.Header{}
		for number := range fields {
			header.Add(fmt.Sprintf("X-%d", number/2), "")
		}
		if status := get(t, "127.0.0.1", address, header); status != want {
			t.Errorf("%d fields are answered %d", fields, status)
		}
	}
}

func TestManyTrailersAreRefused(t *testing.T) {
	address := serveLimited(t, newRequests(100, 100, newLimiter(t, limits.Limits{}), clock.RealClock{}), short)
	client := dialHTTP2(t, "127.0.0.1", address)
	names := make([]string, maxHeaderFields+1)
	for number := range names {
		names[number] = fmt.Sprintf("X-%d", number)
	}
	if err := errors.Join(client.request(1, hpack.HeaderField{Name: "trailer", Value: strings.Join(names, ",")}), client.send()); err != nil {
		t.Fatal(err)
	}
	for {
		switch frame, err := client.ReadFrame(); frame.(type) {
		case *http2.RSTStreamFrame:
			return
		case *http2.HeadersFrame:
			t.Fatal("it is answered")
		default:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestClientsMaySendLittleThatIsNotRead reads what clients are told that they may send.
func TestClientsMaySendLittleThatIsNotRead(t *testing.T) {
	address := serveLimited(t, newRequests(100, 100, newLimiter(t, limits.Limits{}), clock.RealClock{}), short)
	client := dialHTTP2(t, "127.0.0.1", address)
	if err := errors.Join(client.WritePing(false, [8]byte{}), client.send()); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := client.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			window, _ := frame.Value(http2.SettingInitialWindowSize)
			largest, _ := frame.Value(http2.SettingMaxFrameSize)
			if !frame.IsAck() && (window != maxUnreadBytes || largest != maxFrameBytes) {
				t.Errorf("%d bytes of a body, and %d of a frame", window, largest)
			}
		case *http2.WindowUpdateFrame:
			t.Errorf("%d more bytes of all bodies of a connection", frame.Increment)
		case *http2.PingFrame: // All else was sent before.
			return
		}
	}
}
