package server

import (
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
		"no handshake":      {nil, headerTimeout},
		"no header":         {[]byte{}, headerTimeout},
		"a part of one":     {[]byte(header), headerTimeout},
		"a part of a body":  {[]byte(header + "Content-Length: 100\r\n\r\n{"), reviewTimeout},
		"no further review": {[]byte(header + "Content-Length: 2\r\n\r\n{}"), idleTimeout},
	}
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
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(Options{Reviews: map[string]Cost{"/review": {MaxBytes: 1000, ValueBytes: 1}}})
				if err != nil {
					t.Fatal(err)
				}
				s.Register("/review", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				served := s.newHTTPServer(t.Context(), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
				inner := pipes.Listen()
				ended := make(chan error, 1)
				go func() { ended <- served.ServeTLS(s.newListener(inner), "", "") }()
				client := inner.Connect()
				begun := time.Now()
				config := &tls.Config{RootCAs: roots, ServerName: "webhook", MinVersion: tls.VersionTLS12, Time: func() time.Time { return issued }}
				if got := untilClosed(t, client, config, test.sent).Sub(begun); got < test.want || got > test.want+time.Second {
					t.Errorf("closed after %s, want %s", got, test.want)
				}
				if err := errors.Join(client.Close(), served.Close()); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
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
