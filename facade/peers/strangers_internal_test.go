package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/line"
)

// noEngine is an engine in which nothing happens.
type noEngine struct{ line.Local }

func (noEngine) OnRelease(func(context.Context, *v1alpha1.Lock)) {}

// serviceFor returns a service with members at these addresses, at a time that stands still.
func serviceFor(t *testing.T, listener net.Listener, access Authenticator, members ...string) *Service {
	t.Helper()
	watch := &Watch{}
	var known []member
	for _, address := range members {
		known = append(known, member{name: address, address: address})
	}
	watch.members.Store(&known)
	own, err := line.New(line.Options{Local: noEngine{}, Self: "a"})
	if err != nil {
		t.Fatal(err)
	}
	service, err := NewService(Options{
		Line: own, Listener: listener, Access: access, User: "replica", HasMember: watch.HasMember,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") },
		Clock:       clocktesting.NewFakePassiveClock(time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// A stranger opens as many connections as it likes, and answers on them: replicas have room of their own, and of others the
// stranger's make room.
func TestConnectionsOfStrangersKeepNoReplicaOut(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := serviceFor(t, inner, tokens{}, "127.0.1.1:8445", "replica.example:8445").listener
	accepted := make(chan net.Conn)
	go acceptAll(listener, accepted)
	t.Cleanup(func() { _ = listener.Close() })
	dial := func(from string) net.Conn {
		t.Helper()
		connection, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from + ":0"))}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	mustBeClosed := func(connection net.Conn, which string) {
		t.Helper()
		if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one more connection of %s is open", which)
		}
	}
	accept := func() net.Conn {
		t.Helper()
		select {
		case connection := <-accepted:
			t.Cleanup(func() { _ = connection.Close() })
			return connection
		case <-time.After(time.Minute):
			t.Fatal("a connection is not accepted")
			return nil
		}
	}
	mustBeOpen := func(from string) net.Conn {
		t.Helper()
		dial(from)
		return accept()
	}
	var strangers []net.Conn
	for i := range maxStrangers {
		strangers = append(strangers, dial(fmt.Sprintf("127.0.0.%d", 2+i/maxPerOrigin)))
		accept()
	}
	mustBeOpen("127.0.2.1")
	mustBeClosed(strangers[0], "strangers")
	var last net.Conn
	for range maxPerOrigin {
		last = mustBeOpen("127.0.1.1")
	}
	mustBeClosed(dial("127.0.1.1"), "a replica")
	mustBeOpen("127.0.2.1")
	mustBeClosed(strangers[maxPerOrigin], "strangers") // It was none of the replica's.
	_ = last.Close()
	mustBeOpen("127.0.1.1")
}

// Pods of a node, or of a whole cluster, may share the network of an IPv6 address.
func TestReviewsOfStrangersKeepNoReplicaOut(t *testing.T) {
	service := serviceFor(t, struct{ net.Listener }{}, tokens{}, "[fd00::1]:8445", "[fd00::2]:8445", "10.0.0.1:8445")
	from := func(address string) codes.Code {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))})
		return status.Code(service.admit(nil, stream{ctx: metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer random"))}, nil, nil))
	}
	useUp := func(address string) {
		for range reviewsAtOnce {
			_ = from(address)
		}
		if got := from(address); got != codes.ResourceExhausted {
			t.Errorf("one more token from %s: %v", address, got)
		}
	}
	useUp("[fd00::bad]:1")
	if got := from("[fd00::bad:bad]:1"); got != codes.ResourceExhausted {
		t.Errorf("strangers of one network are told apart: %v", got)
	}
	useUp("[fd00::1]:1")
	for _, address := range []string{"[fd00::2]:1", "[::ffff:10.0.0.1]:1"} {
		if got := from(address); got != codes.Unauthenticated {
			t.Errorf("the token of the replica at %s is not reviewed: %v", address, got)
		}
	}
}
