package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/network"
	"forrst.dev/lock-operator/test/support/exposition"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn

	from     string
	isClosed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	address, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		panic(err)
	}
	return address
}

func (c *fakeConn) Close() error {
	c.isClosed = true
	return nil
}

// Read implements [net.Conn]. Something has always arrived.
func (*fakeConn) Read(p []byte) (int, error) { return len(p), nil }

// fakeListener accepts what is sent to it.
type fakeListener struct {
	net.Listener

	conns  chan *fakeConn
	closed chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	close(l.closed)
	return nil
}

// bounded are connections with a clock of the test. Each is opened through the listener.
type bounded struct {
	*connections

	t        *testing.T
	clock    *clocktesting.FakeClock
	listener net.Listener
	conns    chan *fakeConn
}

func newBounded(t *testing.T, maximum, maxPerAddress int) *bounded {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	b := &bounded{connections: newConnections(maximum, maxPerAddress, fake), t: t, clock: fake, conns: make(chan *fakeConn, 1000)}
	b.listener = b.limit(&fakeListener{conns: b.conns, closed: make(chan struct{})})
	return b
}

// open opens a connection from the address.
func (b *bounded) open(from string) *connection {
	b.t.Helper()
	b.conns <- &fakeConn{from: from}
	accepted, err := b.listener.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	return connectionOf(accepted)
}

// openIdle opens one whose first call has ended.
func (b *bounded) openIdle(from string) *connection {
	b.t.Helper()
	c := b.openBusy(from)
	b.setState(c, http.StateIdle)
	return c
}

// openBusy opens one that has a call.
func (b *bounded) openBusy(from string) *connection {
	b.t.Helper()
	c := b.open(from)
	b.setState(c, http.StateActive)
	c.authenticated()
	return c
}

func isClosed(c *connection) bool {
	fake, _ := c.Conn.(*fakeConn)
	return fake.isClosed
}

func (b *bounded) wantClosed(title string, want bool, all ...*connection) {
	b.t.Helper()
	for index, c := range all {
		if isClosed(c) != want {
			b.t.Errorf("%s: connection %d is closed: %t", title, index, isClosed(c))
		}
	}
}

const (
	hostile = "192.0.2.1:1"
	honest  = "192.0.2.2:1"
)

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	b := newBounded(t, 100, 2)
	first, second := b.openBusy(hostile), b.openIdle(hostile)
	refused := &fakeConn{from: "192.0.2.1:2"}
	b.conns <- refused
	other := b.open(honest)
	if !refused.isClosed || b.count != 3 {
		t.Errorf("a third connection of the address was accepted, %d are open", b.count)
	}
	b.wantClosed("authenticated", false, first, second, other)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	b.wantClosed("there is room again", false, b.open(hostile))
	if b.closedFor(closedForAddress) != 1 {
		t.Error("the refusal was not counted")
	}
}

func TestANetworkOfIPv6IsOneAddress(t *testing.T) {
	b := newBounded(t, 100, 1)
	first := b.open("[2001:db8::1]:1")
	b.open("[2001:db8:0:1::1]:1")
	b.wantClosed("another network", false, first)
	b.open("[2001:db8::ffff:1]:1")
	b.wantClosed("the same network", true, first)
}

// Programs behind one address need not know each other: one that shows a token gets its connection.
func TestConnectionsWithoutCredentialsGiveWayToOthersOfTheirAddress(t *testing.T) {
	b := newBounded(t, 100, 3)
	silent := []*connection{b.open(hostile), b.open(hostile), b.open(hostile)}
	b.openBusy(hostile)
	b.wantClosed("the oldest", true, silent[0])
	b.wantClosed("the others", false, silent[1:]...)
}

func TestIdleConnectionsAreClosedEarlyWhenMostAreOpen(t *testing.T) {
	b := newBounded(t, 8, 8)
	busy, idle, silent := b.openBusy(honest), b.openIdle(honest), b.open(honest)
	b.clock.Step(time.Hour)
	young := b.openIdle(honest)
	for range 2 {
		b.openBusy(honest)
	}
	b.wantClosed("while few are open", false, busy, idle, silent, young)
	b.clock.Step(unauthenticatedNearLimit)
	b.openBusy(honest)
	b.wantClosed("of a busy one, and of one that was idle for a moment", false, busy, young)
	b.wantClosed("when most are open", true, idle, silent)
	if b.closedFor(closedIdle) != 1 || b.closedFor(closedUnauthenticated) != 1 {
		t.Errorf("%v are counted", b.closed)
	}
}

// The client that opens connections fastest must not keep others out.
func TestOpeningConnectionsWithoutCallsKeepsNoCallerOut(t *testing.T) {
	b := newBounded(t, 10, 10)
	held := b.openBusy(honest)
	for range 100 {
		b.open(hostile)
	}
	b.openBusy(honest)
	b.wantClosed("a busy connection", false, held)
	if b.count > 10 {
		t.Errorf("%d are open", b.count)
	}
}

func TestAtTheBoundAConnectionWaitsUntilAnotherEndsOrIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(t, 2, 2)
		first, second := b.openBusy(honest), b.openBusy(honest)
		opened := make(chan *connection, 1)
		begin := func() { go func() { opened <- b.open(honest) }() }
		begin()
		synctest.Wait()
		if len(opened) > 0 {
			t.Fatal("it was opened beyond the bound")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		third := <-opened
		third.authenticated()
		b.setState(second, http.StateIdle)
		begin()
		synctest.Wait()
		if len(opened) > 0 || isClosed(second) {
			t.Fatal("a connection was closed that has just been used")
		}
		b.clock.Step(idleAtLimit)
		<-opened
		b.wantClosed("idle", true, second)
		b.wantClosed("busy", false, third)
	})
}

func TestAClosedListenerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBounded(t, 1, 1)
		b.openBusy(honest)
		b.conns <- &fakeConn{from: honest}
		ended := make(chan error)
		go func() {
			_, err := b.listener.Accept()
			ended <- err
		}()
		synctest.Wait()
		if err := b.listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheNextCallOfAConnectionEndsItsIdleness(t *testing.T) {
	b := newBounded(t, 1, 1)
	c := b.openIdle(honest)
	b.setState(c, http.StateActive)
	b.clock.Step(time.Hour)
	if a := b.tryOpen(&connection{Conn: &fakeConn{from: hostile}, all: b.connections, network: network.Of(hostile)}); a.isOpen || len(a.closed) > 0 {
		t.Errorf("it was closed: %+v", a)
	}
	b.setState(c, http.StateIdle)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b.setState(c, http.StateIdle) // The server may report this late.
	if b.count != 0 || b.idle.count != 0 || b.idle.oldest() != nil || b.idle.back != nil || b.unauthenticated.Len() != 0 || len(b.addresses) != 0 {
		t.Errorf("something is left of it: %+v", b.connections)
	}
}

func TestSaturationIsToldAndDoesNotEndReadiness(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	registry := prometheus.NewPedanticRegistry()
	s, err := New(Options{Clock: fake, Limits: limits.Limits{Running: 1}, Metrics: registry, MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	probe := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	want := func(title string, status int, text string) {
		t.Helper()
		if gotStatus, gotText := probe("/readyz/saturation"); gotStatus != status || gotText != text {
			t.Errorf("%s: %d %s", title, gotStatus, gotText)
		}
		if status, _ := probe("/readyz"); status != http.StatusOK {
			t.Errorf("%s: the replica is not ready: %d", title, status)
		}
	}
	want("idle", http.StatusOK, "ok")
	permit, err := s.Limiter().Admit(limits.Caller{}, limits.Work)
	if err != nil {
		t.Fatal(err)
	}
	fake.Step(saturatedAfter - time.Millisecond)
	want("for a moment", http.StatusOK, "ok")
	fake.Step(time.Millisecond)
	c := &connection{Conn: &fakeConn{from: honest}, all: s.open}
	s.open.tryOpen(c)
	want("for some seconds", http.StatusServiceUnavailable, "saturated: running")
	c.authenticated()
	fake.Step(saturatedAfter)
	want("with connections", http.StatusServiceUnavailable, "saturated: running, connections")
	exposed := exposition.Of(&metric.FacadeSaturated, `lock_operator_facade_saturated_seconds{limit="connections"} 3
lock_operator_facade_saturated_seconds{limit="running"} 6
lock_operator_facade_saturated_seconds{limit="waiting"} 0
`)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(exposed), metric.FacadeSaturated.Name); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	permit.Release()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want("afterwards", http.StatusOK, "ok")
}

func TestACallMarksItsConnectionAsAuthenticated(t *testing.T) {
	b := newBounded(t, 10, 10)
	c := b.open(honest)
	control, err := access.New(access.Options{Namespace: "locks"})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(withConnection(context.WithoutCancel(t.Context()), c), http.MethodGet, "/", http.NoBody)
	limitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := Authenticate(r, control); err != nil {
			t.Error(err)
		}
		if b.requests.authenticated != 1 || b.requests.unauthenticated.count != 0 {
			t.Error("the request counts as one without a caller")
		}
	}), nil).ServeHTTP(httptest.NewRecorder(), request)
	if !c.isAuthenticated.Load() || b.unauthenticated.Len() != 0 {
		t.Error("it counts as one without credentials")
	}
}

func TestFollowingTheStateOfAConnectionAllocatesNothing(t *testing.T) {
	b := newBounded(t, 10, 10)
	first, second := b.openIdle(honest), b.openIdle(honest)
	if allocations := testing.AllocsPerRun(100, func() {
		for _, c := range []*connection{first, second} {
			b.setState(c, http.StateActive)
			b.setState(c, http.StateIdle)
		}
	}); allocations > 0 {
		t.Errorf("%g allocations", allocations)
	}
}

func TestNothingIsReadFromAConnectionThatHasEnded(t *testing.T) {
	b := newBounded(t, 10, 0)
	c := b.open(honest)
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	_ = c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
