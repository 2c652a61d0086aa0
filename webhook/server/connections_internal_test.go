package server

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// accepted is a connection of the network with the number.
type accepted struct {
	net.Conn

	network int
}

// RemoteAddr implements [net.Conn].
func (a accepted) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:1000", a.network)))
}

// port is a listener without a network whose connections are told what they do.
type port struct {
	*listener

	t     *testing.T
	clock *clocktesting.FakeClock
}

func newPort(t *testing.T, options Options) *port {
	t.Helper()
	now := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	options.Clock = now
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return &port{listener: s.newListener(nil), t: t, clock: now}
}

// open opens a connection that is in the phase for longer than those that are opened after it.
func (p *port) open(network int, in phase) *connection {
	p.t.Helper()
	admitted, closing := p.admit(accepted{network: network})
	if admitted == nil || closing != nil {
		p.t.Fatalf("a connection of network %d finds no room", network)
	}
	admitted.enter(in)
	p.clock.SetTime(p.clock.Now().Add(time.Millisecond))
	return admitted
}

// wantLeaves checks which connection makes room for a new one of the network; nil means that none does.
func (p *port) wantLeaves(network int, want *connection) {
	p.t.Helper()
	before := p.listener.open
	admitted, closing := p.admit(accepted{network: network})
	switch {
	case want == nil && (admitted != nil || closing == nil):
		p.t.Errorf("another connection of network %d finds room", network)
	case want != nil && (admitted == nil || closing != want.Conn || want.phase != closed):
		p.t.Errorf("the wrong connection makes room for another one of network %d: %v, want %v", network, closing, want.Conn)
	}
	if p.listener.open != before {
		p.t.Errorf("%d connections are counted, want %d", p.listener.open, before)
	}
}

func TestTheNetworkWithMostConnectionsMakesRoom(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 10})
	p.open(3, idle)
	p.open(2, idle)
	for range 2 {
		p.open(2, silent)
	}
	oldest := p.open(1, idle)
	for range 4 {
		p.open(1, idle)
	}
	p.open(3, idle)
	p.wantLeaves(3, oldest)
}

// Two networks with half of all connections each were able to keep all others out.
func TestIdleConnectionsOfTwoNetworksMakeRoomForAThird(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 4})
	for _, network := range []int{1, 2, 1, 2} {
		p.open(network, idle)
	}
	admitted, closing := p.admit(accepted{network: 3})
	if admitted == nil || closing == nil {
		t.Fatal("a connection of a third network finds no room")
	}
	admitted.enter(judged)
	// Both go on connecting. Neither closes that of the third.
	for number := range 20 {
		if _, closing := p.admit(accepted{network: 1 + number%2}); closing == admitted.Conn {
			t.Fatal("the connection of the third network is closed")
		}
	}
	admitted.enter(idle)
	for number := range 20 {
		if _, closing := p.admit(accepted{network: 1 + number%2}); closing == admitted.Conn {
			t.Fatal("the idle connection of the third network is closed")
		}
	}
}

func TestAFullNetworkMakesRoomForItself(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 6})
	p.open(2, idle)
	p.open(1, judged)
	oldest, waiting := p.open(1, idle), p.open(1, silent)
	p.wantLeaves(1, waiting)
	p.listener.networks[netip.MustParsePrefix("10.0.0.1/32")].phases[silent].Front().Value.(*connection).enter(judged)
	p.wantLeaves(1, oldest)
}

func TestAConnectionWhoseReviewIsJudgedIsNotClosed(t *testing.T) {
	for _, kept := range []phase{waiting, judged} {
		p := newPort(t, Options{MaxConnections: 4})
		for _, network := range []int{1, 1, 2, 2} {
			p.open(network, kept)
		}
		p.clock.SetTime(p.clock.Now().Add(time.Hour))
		p.wantLeaves(1, nil)
		p.wantLeaves(3, nil)
	}
}

// A client that sends its review byte by byte, or does not read the answer, must not keep its place.
func TestASlowTransferMakesRoom(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 4})
	oldest := p.open(1, transferring)
	for _, network := range []int{1, 2, 2} {
		p.open(network, transferring)
	}
	p.wantLeaves(3, nil)
	p.clock.SetTime(p.clock.Now().Add(slowTransfer - 2*time.Millisecond))
	p.wantLeaves(1, oldest)
}

func TestANetworkTakesNothingFromSmallerOnes(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 4})
	p.open(1, idle)
	own := p.open(2, idle)
	p.open(3, idle)
	p.open(2, judged)
	p.wantLeaves(2, own)
}

// If clients are verified, those that are silent may have no certificate. They must not close the
// connections of API servers, however many networks they are in.
func TestSilentConnectionsMakeRoomFirstIfClientsAreVerified(t *testing.T) {
	p := newPort(t, Options{MaxConnections: 10, ClientCA: "ca.crt"})
	for range 4 {
		p.open(1, idle)
	}
	p.open(2, silent)
	oldest := p.open(3, silent)
	for _, network := range []int{3, 4, 5, 6} {
		p.open(network, silent)
	}
	p.wantLeaves(7, oldest)
}
