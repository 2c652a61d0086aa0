package server_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/webhook/server"
)

// connect returns a connection of the network that sends nothing.
func (w *world) connect(network int) net.Conn {
	w.t.Helper()
	connection, err := w.from(network).DialContext(w.t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(w.url, "https://"), path))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = connection.Close() }) // The server may have closed it.
	return connection
}

// handshake returns the error with which a handshake on the connection ends. Without one, the
// connection is counted as open.
func (w *world) handshake(connection net.Conn) error {
	return tls.Client(connection, &tls.Config{RootCAs: w.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}).HandshakeContext(w.t.Context())
}

// serve sends a review on a connection of the network, which stays open, and returns the error.
func (w *world) serve(network int) error {
	_, _, err := w.post(w.client(network), strings.NewReader("{}"))
	return err
}

// hold sends a review of each network, which are being judged when hold returns. Calling end has them
// answered.
func (w *world) hold(h *holding, networks ...int) (end func()) {
	w.t.Helper()
	ended := make(chan error, len(networks))
	for _, network := range networks {
		go func() { ended <- w.serve(network) }()
		select {
		case <-h.begun:
		case err := <-ended:
			w.t.Fatalf("a review of network %d: %v", network, err)
		}
	}
	return func() {
		h.releaseAll()
		for range networks {
			if err := <-ended; err != nil {
				w.t.Errorf("a review that was being judged: %v", err)
			}
		}
	}
}

func TestOneNetworkGetsHalfOfTheConnections(t *testing.T) {
	h := newHolding()
	w := start(t, server.Options{MaxConnections: 4}, h.handle)
	end := w.hold(h, 1, 1)
	defer end()
	if err := w.serve(1); err == nil {
		t.Error("a third of four connections was served")
	}
	endOther := w.hold(h, 2)
	defer endOther()
	if got := w.refused("connections"); got == 0 {
		t.Error("no refusal is counted")
	}
}

func TestConnectionsAreBoundedInTotal(t *testing.T) {
	h := newHolding()
	w := start(t, server.Options{MaxConnections: 4}, h.handle)
	usage := func() float64 {
		got, _ := exposition.Value(w.registry, &metric.LimitUsage, map[string]string{"limit": "webhook_connections"})
		return got
	}
	if got := usage(); got != 0 {
		t.Errorf("%v of the connections are used by none", got)
	}
	end := w.hold(h, 1, 1, 2, 2)
	defer end()
	if err := w.serve(3); err == nil {
		t.Error("a fifth of four connections was served")
	}
	if got := usage(); got != 1 {
		t.Errorf("%v of the connections are used by all", got)
	}
	if got, _ := exposition.Value(w.registry, &metric.LimitUsage, map[string]string{"limit": "webhook_memory"}); got <= 0 || got >= 1 {
		t.Errorf("%v of the memory is used by four small reviews", got)
	}
}

// Whatever the clients of two networks do with all of the connections, the API server gets one.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	w := start(t, server.Options{MaxConnections: 4}, ok)
	for _, network := range []int{1, 1, 2, 2, 3, 1, 2, 3} {
		for deadline := time.Now().Add(time.Minute); ; { // A client may have an answer before the server has done with it.
			err := w.serve(network)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("network %d: %v", network, err)
			}
		}
	}
}

// Clients that connect and send nothing must not keep the API server out, though they have taken all
// connections.
func TestASilentConnectionMakesRoom(t *testing.T) {
	w := start(t, server.Options{MaxConnections: 4}, ok)
	var silent []net.Conn
	for _, network := range []int{1, 2, 2} {
		silent = append(silent, w.connect(network))
		if err := w.handshake(silent[len(silent)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.serve(1); err != nil {
		t.Fatal(err)
	}
	if err := w.serve(3); err != nil {
		t.Errorf("silent connections keep others out: %v", err)
	}
	if err := silent[0].SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The first bytes are tickets of the handshake.
	if _, err := io.Copy(io.Discard, silent[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection that was silent for longest is still open")
	}
}
