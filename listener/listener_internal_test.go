package listener

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// accepted is a connection from an address.
type accepted struct {
	net.Conn

	from     string
	isClosed bool
}

func (a *accepted) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.from))
}

func (a *accepted) Close() error {
	a.isClosed = true
	return nil
}

// port accepts what it is told to.
type port struct {
	*Listener

	t    *testing.T
	next *accepted
	told []string
}

// inner is the listener below.
type inner struct {
	net.Listener

	port *port
}

func (i inner) Accept() (net.Conn, error) {
	next := i.port.next
	if next == nil {
		return nil, net.ErrClosed
	}
	i.port.next = nil
	return next, nil
}

func newPort(t *testing.T, options Options) *port {
	t.Helper()
	p := &port{t: t}
	options.OnClosed = func(reason string) { p.told = append(p.told, reason) }
	p.Listener = Limit(inner{port: p}, options)
	return p
}

// open opens a connection. It returns nil if there is no room for it.
func (p *port) open(from string) *Conn {
	p.t.Helper()
	if !strings.Contains(from, "]:") {
		from = "10.0.0." + from + ":1000"
	}
	made := &accepted{from: from}
	p.next = made
	c, err := p.Accept()
	if err != nil {
		if !made.isClosed {
			p.t.Error("a connection that finds no room is left open")
		}
		return nil
	}
	return c.(*Conn)
}

func (p *port) wantClosed(want bool, conns ...*Conn) {
	p.t.Helper()
	for number, c := range conns {
		if got := c.Conn.(*accepted).isClosed; got != want {
			p.t.Errorf("connection %d is closed: %t", number, got)
		}
	}
}

// openIdle returns a connection whose client has shown who it is.
func (p *port) openIdle(from string) *Conn {
	p.t.Helper()
	c := p.open(from)
	c.Hold(true)()
	return c
}

// One address that opens connections again and again keeps no other out.
func TestANetworkThatFillsThePortKeepsNoOtherOut(t *testing.T) {
	p := newPort(t, Options{Max: 10})
	for range 100 {
		p.open("1")
	}
	honest := p.open("2")
	for range 100 {
		p.open("1")
	}
	p.wantClosed(false, honest)
	if p.Open() != 10 || p.Usage() != 1 {
		t.Errorf("%d are open, %v of all", p.Open(), p.Usage())
	}
}

func TestConnectionsOfOneNetworkAreBounded(t *testing.T) {
	p := newPort(t, Options{Max: 100, MaxPerNetwork: 2})
	held := p.open("1")
	release := held.Hold(true)
	silent := p.open("[2001:db8::1]:1")
	p.open("[2001:db8::2]:1")
	p.wantClosed(false, silent)
	p.open("[2001:db8::ffff:1]:1")
	p.wantClosed(true, silent)
	oldest := p.open("1")
	p.open("1")
	p.wantClosed(true, oldest)
	p.wantClosed(false, held)
	release()
	if p.open("1") == nil {
		t.Error("an idle connection makes no room")
	}
}

func TestTheClientsThatHaveNotShownWhoTheyAreMakeRoomFirst(t *testing.T) {
	p := newPort(t, Options{Max: 5})
	idle := []*Conn{p.openIdle("1"), p.openIdle("1"), p.openIdle("1")}
	silent := []*Conn{p.open("2"), p.open("3")}
	p.open("4")
	p.wantClosed(true, silent[0])
	p.wantClosed(false, append(idle, silent[1])...)
}

func TestTheOldestIdleConnectionMakesRoom(t *testing.T) {
	p := newPort(t, Options{Max: 3})
	first, second, third := p.openIdle("1"), p.openIdle("1"), p.openIdle("2")
	first.Hold(true)() // It was used.
	p.open("3")
	p.wantClosed(true, second)
	p.wantClosed(false, first, third)
}

func TestAConnectionThatIsHeldStays(t *testing.T) {
	p := newPort(t, Options{Max: 2})
	one, other := p.open("1"), p.open("1")
	release, releaseAgain := one.Hold(false), one.Hold(true)
	releaseOther := other.Hold(true)
	defer releaseOther()
	if p.open("2") != nil {
		t.Error("another connection finds room")
	}
	release()
	release()
	if p.open("2") != nil {
		t.Error("one that is held twice is released at once")
	}
	releaseAgain()
	p.open("2")
	p.wantClosed(true, one)
	if want := []string{Refused, Refused, Evicted}; !slices.Equal(p.told, want) {
		t.Errorf("told %q, want %q", p.told, want)
	}
}

func TestMembersHaveRoomOfTheirOwn(t *testing.T) {
	member := netip.MustParseAddr("10.0.0.9")
	p := newPort(t, Options{Max: 2, MaxPerNetwork: 2, IsMember: func(from netip.Addr) bool { return from == member }})
	stranger := p.open("1")
	p.open("2")
	members := []*Conn{p.open("9"), p.open("9")}
	p.wantClosed(false, stranger)
	if p.open("9") != nil {
		t.Error("a member has more than its share")
	}
	for range 10 {
		p.open("3")
	}
	p.wantClosed(false, members...)
	if p.From(members[0].RemoteAddr()) == nil || p.From(stranger.RemoteAddr()) != nil {
		t.Error("connections are not found by their address")
	}
}

func TestNothingIsLeftOfConnectionsThatHaveEnded(t *testing.T) {
	p := newPort(t, Options{Max: 3})
	c, held := p.open("1"), p.open("2")
	release := held.Hold(true)
	empty := p.Empty()
	for range 2 {
		_ = c.Close()
	}
	select {
	case <-empty:
		t.Error("a connection is open")
	default:
	}
	_ = held.Close()
	release()
	<-empty
	<-p.Empty()
	if len(p.conns)+len(p.networks)+p.strangers+p.unproven.Len()+p.idle.Len() != 0 {
		t.Errorf("something is left: %+v", p.Listener)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d bytes are read, %v", n, err)
	}
}

// dialed returns both ends of a connection.
func dialed(t *testing.T) (l *Listener, served *Conn, client net.Conn) {
	t.Helper()
	below, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Limit(below, Options{Max: 2})
	t.Cleanup(func() { _ = l.Close() })
	if client, err = new(net.Dialer).DialContext(t.Context(), "tcp", below.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return l, c.(*Conn), client
}

// A connection is also closed to end what is done for its client, such as to read a body.
func TestAConnectionThatLingersIsReadNoMore(t *testing.T) {
	l, served, client := dialed(t)
	l.Linger()
	read := make(chan error)
	go func() {
		_, err := served.Read(make([]byte, 1))
		read <- err
	}()
	for served.reading.TryLock() {
		served.reading.Unlock()
		runtime.Gosched()
	}
	_ = served.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	for range 10 {
		if _, err := io.WriteString(client, "late"); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if l.Open() != 1 {
		t.Error("it does not count any more")
	}
	_ = client.Close()
	<-l.Empty()
}

func TestAConnectionThatLingersCanBeAborted(t *testing.T) {
	l, served, client := dialed(t)
	l.Linger()
	_ = served.Close()
	l.Abort()
	<-l.Empty()
	for { // It is closed.
		if _, err := io.WriteString(client, "late"); err != nil {
			return
		}
	}
}

// Any client can cause what a server says of its connections.
func TestWhatClientsDoWrongDoesNotFillTheLog(t *testing.T) {
	for verbosity, want := range []int{0, 1} {
		lines := 0
		server := &http.Server{}
		Track(server, funcr.New(func(string, string) { lines++ }, funcr.Options{Verbosity: verbosity}))
		server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1000: EOF")
		if lines != want {
			t.Errorf("%d lines at verbosity %d", lines, verbosity)
		}
	}
}
