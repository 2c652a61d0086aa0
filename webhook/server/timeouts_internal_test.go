package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/test/support/pipes"
)

func TestConnectionsThatMakeNoProgressAreClosed(t *testing.T) {
	const header = "POST /review HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
	cases := map[string]struct {
		// sent is what the client sends after the handshake; nil if it begins none.
		sent []byte
		want time.Duration
	}{
		"no handshake":      {nil, answerTimeout},
		"no review":         {[]byte{}, idleTimeout},
		"a part of one":     {[]byte(header), idleTimeout},
		"a part of a body":  {[]byte(header + "Content-Length: 100\r\n\r\n{"), reviewTimeout},
		"no further review": {[]byte(header + "Content-Length: 2\r\n\r\n{}"), idleTimeout},
	}
	serving := newPiped(t)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serving.connect(t)
				begun := time.Now()
				if got := untilClosed(t, client, serving.client, test.sent).Sub(begun); got < test.want || got > test.want+time.Second {
					t.Errorf("closed after %s, want %s", got, test.want)
				}
			})
		})
	}
}

// A client may have made the connection for a review that another connection has taken, and keeps it for later.
func TestTheFirstReviewMayComeLate(t *testing.T) {
	serving := newPiped(t)
	synctest.Test(t, func(t *testing.T) {
		client := tls.Client(serving.connect(t), serving.client)
		answers := bufio.NewReader(client)
		if err := client.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(clientIdleTimeout) //nolint:forbidigo // Only the fake clock moves.
		for _, sent := range []string{"POST /review HTTP/1.1\r\nHost: webhook\r\n", "Content-Length: 2\r\n\r\n{", "}"} {
			if _, err := client.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second) //nolint:forbidigo // As above.
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("the connection was closed: %v", err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("answered %s", answer.Status)
		}
	})
}

// clientIdleTimeout is how long an API server keeps a connection that it does not use.
const clientIdleTimeout = 90 * time.Second

// piped is a server without a network.
type piped struct{ server, client *tls.Config }

func newPiped(t *testing.T) *piped {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("webhook", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Now() // The clock of the tests starts earlier.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return &piped{
		server: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		client: &tls.Config{RootCAs: roots, ServerName: "webhook", MinVersion: tls.VersionTLS12, Time: func() time.Time { return issued }},
	}
}

// connect starts a server and connects to it, until the test ends.
func (p *piped) connect(t *testing.T) net.Conn {
	t.Helper()
	s, err := New(Options{Reviews: map[string]Cost{"/review": {MaxBytes: 1000, ByteCost: 12}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Register("/review", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	served := s.newHTTPServer(t.Context(), p.server)
	inner := pipes.Listen()
	ended := make(chan error, 1)
	s.listener.Listener = inner
	go func() { ended <- served.ServeTLS(s.listener, "", "") }()
	client := inner.Connect()
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), served.Close()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return client
}

// untilClosed sends a part of what the server expects and returns when the server gave up.
func untilClosed(t *testing.T, client net.Conn, config *tls.Config, sent []byte) time.Time {
	t.Helper()
	reader := io.Reader(client)
	if sent != nil {
		secured := tls.Client(client, config)
		if err := secured.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(sent) > 0 {
			if _, err := secured.Write(sent); err != nil {
				t.Fatal(err)
			}
		}
		reader = secured
	}
	_, _ = io.Copy(io.Discard, reader) // It ends when the connection does, with an answer or none.
	return time.Now()
}
