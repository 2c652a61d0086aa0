package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// network is a client of a façade at the other end of real connections.
type network struct {
	*client.Client

	locks *memory
	// opened counts connections.
	opened atomic.Int64
}

// newNetwork lets the caller put something in front of the façade.
func newNetwork(tb testing.TB, front func(facade http.Handler) http.Handler) *network {
	tb.Helper()
	n := &network{locks: newMemory()}
	server := httptest.NewUnstartedServer(front(newHandler(tb, n.locks, func(*testfacade.Settings) {})))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.opened.Add(1)
		}
	}
	server.Start()
	tb.Cleanup(server.Close)
	var err error
	if n.Client, err = client.New(server.URL); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.Close)
	return n
}

func nothing(facade http.Handler) http.Handler { return facade }

func (n *network) cycle(ctx context.Context, key string) error {
	granted, err := n.Acquire(ctx, namespace, forKey(key))
	if err != nil {
		return err
	}
	return n.Release(ctx, namespace, granted.Spec.FullKey(), lock.Proof{Owner: granted.Spec.Owner})
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	n := newNetwork(t, nothing)
	const clients = 16
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for range 20 {
				if err := n.cycle(t.Context(), fmt.Sprint("k", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if opened := n.opened.Load(); opened > 2*clients {
		t.Errorf("%d clients opened %d connections", clients, opened)
	}
}

// resetting has the first request for a function carried out, and its connection reset
// instead of answered.
func resetting(function string) func(http.Handler) http.Handler {
	return func(facade http.Handler) http.Handler {
		var seen atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			facade.ServeHTTP(answer, r)
			if bytes.Contains(body, []byte(function)) && seen.Add(1) == 1 {
				connection, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				if tcp, ok := connection.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = connection.Close()
				return
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		})
	}
}

func TestConnectionsThatAreResetAfterTheWrite(t *testing.T) {
	for _, function := range []string{wire.Acquire, wire.Release} {
		n := newNetwork(t, resetting(function))
		if err := n.cycle(t.Context(), "k"); err != nil {
			t.Errorf("%s: %v", function, err)
		}
		if held, err := n.List(t.Context(), namespace, lock.Filter{}); err != nil || len(held) > 0 {
			t.Errorf("%s: left %v, %v", function, held, err)
		}
	}
}

func TestRenewalThatIsReset(t *testing.T) {
	n := newNetwork(t, resetting(wire.Renew))
	granted, err := n.Acquire(t.Context(), namespace, forKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: granted.Spec.Owner}, 0); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := n.Renew(t.Context(), namespace, "lock:k", lock.Proof{Owner: granted.Spec.Owner}, 0); err != nil {
		t.Errorf("repeated: %v", err)
	}
}

func TestFacadeNoticesThatABlockedCallerLeaves(t *testing.T) {
	n := newNetwork(t, nothing)
	if _, err := n.Acquire(t.Context(), namespace, chosen("k")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := n.Acquire(ctx, namespace, waiting(lock.WaitForever))
			left <- err
		}()
		<-n.locks.waiting
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if err := n.Release(t.Context(), namespace, "lock:k", lock.Proof{Owner: "job-17"}); err != nil {
		t.Error(err)
	}
	if held, err := n.Get(t.Context(), namespace, "lock:k"); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("a caller that has left got %v, %v", held, err)
	}
}

func TestFacadeThatCannotBeReached(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	unreachable, err := client.New(url, client.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := unreachable.Acquire(t.Context(), namespace, forKey("k")); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	// Nothing was sent, so there is nothing to find out.
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

func BenchmarkAcquireAndRelease(b *testing.B) {
	n := newNetwork(b, nothing)
	b.ReportAllocs()
	for b.Loop() {
		if err := n.cycle(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
		n.locks.Calls()
	}
}
