package line_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// gateway is between a replica and the API server: it counts the requests, and delays watches.
type gateway struct {
	kubectl *testenv.Kubectl

	mu     sync.Mutex
	counts requests
	lag    time.Duration
}

// requests are those of one replica or several, but for watches.
type requests struct {
	// writes and reads are about locks, others about anything else.
	writes, reads, others int
}

func newGateway(identity fixture.Identity) *gateway {
	GinkgoHelper()
	target, err := url.Parse(identity.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(identity.Config)
	Expect(err).NotTo(HaveOccurred())
	g := &gateway{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: g.delay,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	counting := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		g.count(request)
		counting.ServeHTTP(w, request)
	})
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.kubectl, err = environment.Kubectl(fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: counted, cluster: {server: "%s"}}]
contexts: [{name: counted, context: {cluster: counted}}]
current-context: counted
`, server.URL))
	Expect(err).NotTo(HaveOccurred())
	return g
}

func isWatch(request *http.Request) bool { return request.URL.Query().Get("watch") != "" }

func (g *gateway) count(request *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	isLock := strings.Contains(request.URL.Path, "/locks")
	switch {
	case isWatch(request):
	case isLock && request.Method == http.MethodGet:
		g.counts.reads++
	case isLock:
		g.counts.writes++
	default:
		g.counts.others++
	}
}

// behind makes each event arrive so much later, of watches that begin from now on.
func (g *gateway) behind(lag time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag = lag
}

func (g *gateway) delay(response *http.Response) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lag > 0 && isWatch(response.Request) {
		response.Body = newLate(response.Body, g.lag)
	}
	return nil
}

// made are the requests of all replicas since they were started.
func (i *installation) made() (all requests) {
	for _, each := range i.gateways {
		each.mu.Lock()
		all.writes += each.counts.writes
		all.reads += each.counts.reads
		all.others += each.counts.others
		each.mu.Unlock()
	}
	return all
}

// since is what was added to former counts.
func (r requests) since(former requests) requests {
	return requests{writes: r.writes - former.writes, reads: r.reads - former.reads, others: r.others - former.others}
}

// late is a body whose content arrives after a time.
type late struct {
	io.Closer

	pieces chan piece
	rest   []byte
	err    error
}

type piece struct {
	content []byte
	due     time.Time
	err     error
}

func newLate(body io.ReadCloser, lag time.Duration) *late {
	l := &late{Closer: body, pieces: make(chan piece, 10_000)}
	go func() { // It ends with the body.
		for {
			content := make([]byte, 64<<10)
			count, err := body.Read(content)
			l.pieces <- piece{content[:count], time.Now().Add(lag), err}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read implements [io.Reader].
func (l *late) Read(into []byte) (int, error) {
	if len(l.rest) == 0 && l.err == nil {
		next := <-l.pieces
		<-time.After(time.Until(next.due))
		l.rest, l.err = next.content, next.err
	}
	if len(l.rest) == 0 {
		return 0, l.err
	}
	count := copy(into, l.rest)
	l.rest = l.rest[count:]
	return count, nil
}
