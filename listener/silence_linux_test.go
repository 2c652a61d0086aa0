package listener_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forrst.dev/lock-operator/listener"
)

func TestTheShortestSilenceOfSeveralCallsEndsAConnection(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := listener.Limit(inner, listener.Options{Max: 1})
	t.Cleanup(func() { _ = limited.Close() })
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	accepted, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	served, ok := accepted.(*listener.Conn)
	if !ok {
		t.Fatalf("%T", accepted)
	}
	for _, each := range []struct{ bound, want time.Duration }{
		{30 * time.Second, 30 * time.Second},
		{time.Minute, 30 * time.Second},
		{2500 * time.Millisecond, 2500 * time.Millisecond},
	} {
		served.BoundSilence(each.bound)
		if got := userTimeout(t, served.Conn); got != each.want {
			t.Errorf("a connection whose client acknowledges nothing ends after %s, want %s", got, each.want)
		}
	}
	var unknown *listener.Conn
	unknown.BoundSilence(time.Second)
}

func userTimeout(t *testing.T, of net.Conn) time.Duration {
	t.Helper()
	made, ok := of.(syscall.Conn)
	if !ok {
		t.Fatalf("%T", of)
	}
	raw, err := made.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	timeout := 0
	var failure error
	if err := raw.Control(func(fd uintptr) {
		timeout, failure = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	return time.Duration(timeout) * time.Millisecond
}
