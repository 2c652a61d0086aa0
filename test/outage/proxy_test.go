package outage_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// proxy stands between one replica and the API server, to which it speaks as the operator. It can
// refuse connections and do to watches what other networks do.
type proxy struct {
	address string
	handler http.Handler
	// server is nil while connections are refused.
	server *http.Server

	mu sync.Mutex
	// flows is closed while watches are not stalled.
	flows chan struct{}
	// loses is set to lose the next event of a delete.
	loses atomic.Bool
}

// startProxy returns a proxy that serves until the suite or spec ends.
func startProxy(ctx context.Context, operator *rest.Config) *proxy {
	GinkgoHelper()
	target, err := url.Parse(operator.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(operator)
	Expect(err).NotTo(HaveOccurred())
	p := &proxy{flows: make(chan struct{}), address: "127.0.0.1:0"}
	close(p.flows)
	p.handler = &httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // watches
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: p.spoil,
	}
	p.listen(ctx)
	DeferCleanup(p.refuse)
	return p
}

// config reaches the API server through the proxy.
func (p *proxy) config() *rest.Config { return &rest.Config{Host: "http://" + p.address} }

// refuse closes all connections and refuses new ones.
func (p *proxy) refuse() {
	if p.server != nil {
		_ = p.server.Close() // Its connections end in any case.
	}
	p.server = nil
}

// listen accepts connections again.
func (p *proxy) listen(ctx context.Context) {
	GinkgoHelper()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.address)
	Expect(err).NotTo(HaveOccurred())
	p.address = listener.Addr().String()
	server := &http.Server{Handler: p.handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	p.server = server
	go func() { _ = server.Serve(listener) }() // It ends with refuse.
}

// stall keeps the events of all watches back, new ones included.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flows = make(chan struct{})
}

// flow lets the events go on.
func (p *proxy) flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.flows)
}

func (p *proxy) flowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flows
}

// spoil puts a filter of its lines into the body of a watch.
func (p *proxy) spoil(response *http.Response) error {
	if response.Request.URL.Query().Get("watch") == "" {
		return nil
	}
	reader, writer := io.Pipe()
	source := response.Body
	response.Body = reader
	ctx := response.Request.Context()
	go func() {
		defer source.Close()
		lines := bufio.NewReader(source)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				writer.CloseWithError(err)
				return
			}
			select {
			case <-p.flowing():
			case <-ctx.Done():
				writer.CloseWithError(ctx.Err())
				return
			}
			if bytes.HasPrefix(line, []byte(`{"type":"DELETED"`)) && p.loses.CompareAndSwap(true, false) {
				continue
			}
			if _, err := writer.Write(line); err != nil {
				return
			}
		}
	}()
	return nil
}
