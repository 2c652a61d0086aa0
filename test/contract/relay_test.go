package contract_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// relay passes connections on to a service until it is closed: then they break, and new ones are refused.
type relay struct {
	target   *url.URL
	listener net.Listener

	mu       sync.Mutex
	ends     []net.Conn
	isClosed bool
	parts    sync.WaitGroup
}

// relayTo returns a relay that is closed at the end of the spec at the latest.
func relayTo(ctx context.Context, service string) *relay {
	GinkgoHelper()
	target, err := url.Parse(service)
	Expect(err).NotTo(HaveOccurred())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	between := &relay{target: target, listener: listener}
	between.parts.Go(between.accept)
	DeferCleanup(between.close)
	return between
}

// url returns the URL of the service through the relay.
func (r *relay) url() string { return r.target.Scheme + "://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		accepted, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.parts.Go(func() { r.pass(accepted) })
	}
}

// pass returns when one end of the connection is closed.
func (r *relay) pass(accepted net.Conn) {
	defer func() { _ = accepted.Close() }()
	onward, err := new(net.Dialer).Dial("tcp", r.target.Host)
	if err != nil {
		return
	}
	defer func() { _ = onward.Close() }()
	if !r.keep(accepted, onward) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{accepted, onward}, {onward, accepted}} {
		ways.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = accepted.Close()
			_ = onward.Close()
		})
	}
	ways.Wait()
}

// keep remembers the ends of a connection; false if the relay is closed.
func (r *relay) keep(ends ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, ends...)
	return !r.isClosed
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.isClosed = true
	for _, end := range r.ends {
		_ = end.Close()
	}
	r.mu.Unlock()
	r.parts.Wait()
}
