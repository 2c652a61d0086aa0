package robustness_test

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// proxy stands between one replica and the API server. It terminates the replica's TLS
// with its own certificate and speaks to the API server as the operator. So it can do to
// each request what a network or a dying server does.
type proxy struct {
	*httptest.Server

	connections *connections
	forward     *httputil.ReverseProxy

	mu     sync.Mutex
	random *rand.Rand
	fates  []fate
}

// fate says what the proxy does with a request for locks or for the election.
type fate int

const (
	untouched fate = iota
	// lostRequest: the API server never sees it; the replica sees a broken connection.
	lostRequest
	// lostReply: the API server carries it out; the replica sees a broken connection.
	lostReply
	// timedOutReply: the API server carries it out; the replica sees a timeout.
	timedOutReply
	// lateRequest: it arrives late, even if the replica has given up by then.
	lateRequest
	// lateReply: its answer arrives late.
	lateReply
)

// maxLate is the longest delay. Many are longer than a replica's operation timeout of 5 s.
const maxLate = 8 * time.Second

// newProxy returns a running proxy. The caller closes it.
func newProxy(operator *rest.Config, seed uint64) (*proxy, error) {
	target, err := url.Parse(operator.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(operator)
	if err != nil {
		return nil, err
	}
	p := &proxy{random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test that can be repeated
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		// The API server is gone. A direct connection would break, too.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.Server = httptest.NewUnstartedServer(p)
	p.EnableHTTP2 = true
	p.Config.ErrorLog = p.forward.ErrorLog
	p.connections = newConnections(p.Listener)
	p.Listener = p.connections
	p.StartTLS()
	return p, nil
}

// kubeconfig is the configuration with which the replica reaches the API server.
func (p *proxy) kubeconfig() *rest.Config {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return &rest.Config{Host: p.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
}

// doom gives one of the fates to half of the requests from now on; no fates end that.
func (p *proxy) doom(fates ...fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fates = fates
}

func (p *proxy) fateOf(request *http.Request) (fate, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	isLock := strings.Contains(request.URL.Path, "/locks") && request.URL.Query().Get("watch") == ""
	if len(p.fates) == 0 || !isLock || p.random.IntN(2) == 0 {
		return untouched, 0
	}
	return p.fates[p.random.IntN(len(p.fates))], time.Duration(p.random.Int64N(int64(maxLate)))
}

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fate, late := p.fateOf(r)
	switch fate {
	case untouched:
		p.forward.ServeHTTP(w, r)
	case lostRequest:
		panic(http.ErrAbortHandler)
	case lostReply:
		p.carryOut(r)
		panic(http.ErrAbortHandler)
	case timedOutReply:
		p.carryOut(r)
		http.Error(w, "upstream request timeout", http.StatusGatewayTimeout)
	case lateRequest:
		kept := detached(r)
		pause(context.WithoutCancel(r.Context()), late)
		passOn(w, p.carryOut(kept))
	case lateReply:
		reply := p.carryOut(r)
		pause(r.Context(), late)
		passOn(w, reply)
	}
}

func passOn(w http.ResponseWriter, reply *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), reply.Header())
	w.WriteHeader(reply.Code)
	_, _ = w.Write(reply.Body.Bytes()) // The replica may have given up.
}

// carryOut sends the request whether or not the replica still waits. With the replica's
// own writer, the reverse proxy would notice that the replica has gone, and stop.
func (p *proxy) carryOut(r *http.Request) *httptest.ResponseRecorder {
	reply := httptest.NewRecorder()
	p.forward.ServeHTTP(reply, detached(r))
	return reply
}

// detached returns the request with its body read. The end of the client does not cancel it.
func detached(r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return r
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
