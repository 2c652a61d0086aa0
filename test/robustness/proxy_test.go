package robustness_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// proxy stands between one replica and the API server. It terminates the replica's TLS
// with its own certificate and speaks to the API server as the operator. So it can do to
// each request what a network or a dying server does.
type proxy struct {
	*httptest.Server

	connections *connections
	watches     *watches
	// path gets to know what the proxy does to requests.
	path      *path
	forward   *httputil.ReverseProxy
	target    *url.URL
	transport http.RoundTripper

	mu     sync.Mutex
	random *rand.Rand
	doom   doom
}

// doom says what happens to a share of the requests.
type doom struct {
	share float64
	fates []fate
}

// fate says what the proxy does with a request for locks.
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
	// repeatedUpdate and repeatedDelete: the proxy sends a PUT or a DELETE twice, as if the
	// first answer had been lost on its other side, and passes the second answer on.
	repeatedUpdate
	repeatedDelete
	// tooManyRequests, failedWebhook, exceededQuota and endingNamespace: the API server
	// refuses the request, in the last two cases a create.
	tooManyRequests
	failedWebhook
	exceededQuota
	endingNamespace
)

// maxLate is the longest delay. Many are longer than a replica's operation timeout of 5 s.
const maxLate = 8 * time.Second

// newProxy returns a running proxy to an API server whose clock is that much ahead. The caller closes
// the proxy.
func newProxy(operator *rest.Config, seed uint64, ahead time.Duration) (*proxy, error) {
	target, err := url.Parse(operator.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(operator)
	if err != nil {
		return nil, err
	}
	transport = &clockAhead{transport, ahead}
	path := &path{}
	p := &proxy{
		path: path, watches: newWatches(path.lose), target: target, transport: transport,
		random: rand.New(rand.NewPCG(seed, 0)),
	}
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

// setDoom gives one of the fates to that share of the requests from now on; the zero doom
// ends that.
func (p *proxy) setDoom(doom doom) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doom = doom
}

func (p *proxy) fateOf(request *http.Request) (fate, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.doom.fates) == 0 || !isForLocks(request) && !isReview(request) || p.random.Float64() >= p.doom.share {
		return untouched, 0
	}
	fate, late := p.doom.fates[p.random.IntN(len(p.doom.fates))], time.Duration(p.random.Int64N(int64(maxLate)))
	if method, isLimited := befalls[fate]; isLimited && (method != request.Method || isReview(request)) {
		return untouched, 0
	}
	return fate, late
}

// befalls names the only method of requests for locks that a fate befalls; any other befalls all,
// and reviews of callers.
var befalls = map[fate]string{
	repeatedUpdate: http.MethodPut, repeatedDelete: http.MethodDelete,
	exceededQuota: http.MethodPost, endingNamespace: http.MethodPost,
}

// isReview reports whether the request asks who a caller is or what it may do.
func isReview(request *http.Request) bool { return strings.HasSuffix(request.URL.Path, "reviews") }

func isForLocks(request *http.Request) bool { return strings.Contains(request.URL.Path, "/locks") }

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isForLocks(r) && r.URL.Query().Get("watch") != "" {
		p.watches.serve(w, r, p.send) // The context is that of the request.
		return
	}
	fate, late := p.fateOf(r)
	if fate == untouched {
		p.forward.ServeHTTP(w, r)
		return
	}
	from := time.Now()
	defer func() { p.path.broke(from, time.Now()) }()
	p.disturb(w, r, fate, late)
}

// send sends a request as the operator.
func (p *proxy) send(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.RequestURI, out.Host = "", p.target.Host
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	return p.transport.RoundTrip(out)
}

func (p *proxy) disturb(w http.ResponseWriter, r *http.Request, fate fate, late time.Duration) {
	switch fate {
	case untouched, lostRequest:
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
	case repeatedUpdate, repeatedDelete:
		kept := detached(r)
		body, _ := io.ReadAll(kept.Body) // It is in memory.
		kept.Body = io.NopCloser(strings.NewReader(string(body)))
		p.carryOut(kept)
		kept.Body = io.NopCloser(strings.NewReader(string(body)))
		passOn(w, p.carryOut(kept))
	case tooManyRequests, failedWebhook, exceededQuota, endingNamespace:
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		refuse(w, fate)
	}
}

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, fate fate) {
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure}
	switch fate {
	case tooManyRequests:
		status.Code, status.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		status.Message = "Too many requests, please try again later."
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		w.Header().Set("Retry-After", "1")
	case failedWebhook:
		status.Code, status.Reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
		status.Message = `Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.example.svc:443/?timeout=10s": dial tcp: connection refused`
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: `failed calling webhook "policy.example.com"`}}}
	case exceededQuota:
		status.Code, status.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
		status.Message = `locks.forrst.dev "x" is forbidden: exceeded quota: locks, requested: count/locks.forrst.dev=1, used: count/locks.forrst.dev=10, limited: count/locks.forrst.dev=10`
		status.Details = &metav1.StatusDetails{Group: "forrst.dev", Kind: "locks", Name: "x"}
	case endingNamespace:
		status.Code, status.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
		status.Message = `locks.forrst.dev "x" is forbidden: unable to create new content in namespace default because it is being terminated`
		status.Details = &metav1.StatusDetails{Group: "forrst.dev", Kind: "locks", Name: "x", Causes: []metav1.StatusCause{
			{Type: corev1.NamespaceTerminatingCause, Message: "namespace default is being terminated", Field: "metadata.namespace"},
		}}
	default:
		panic(fmt.Sprintf("fate %d is no refusal", fate))
	}
	content, err := json.Marshal(status)
	if err != nil {
		panic(err) // Only texts and numbers.
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(content) // The replica may have given up.
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
