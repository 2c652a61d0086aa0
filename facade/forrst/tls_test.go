package forrst_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/facade/server"
)

// certificate is one in two files that can be exchanged.
type certificate struct {
	t                 *testing.T
	certFile, keyFile string
	trusted           *x509.CertPool
}

func newCertificate(t *testing.T) *certificate {
	t.Helper()
	folder := t.TempDir()
	c := &certificate{t: t, certFile: filepath.Join(folder, "tls.crt"), keyFile: filepath.Join(folder, "tls.key")}
	c.issue(1)
	return c
}

// issue writes another certificate.
func (c *certificate) issue(serial int64) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(encoded)
	if err != nil {
		c.t.Fatal(err)
	}
	c.trusted = x509.NewCertPool()
	c.trusted.AddCert(parsed)
	c.write(c.keyFile, "PRIVATE KEY", encodedKey)
	c.write(c.certFile, "CERTIFICATE", encoded)
}

func (c *certificate) write(path, kind string, content []byte) {
	c.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// serve starts a server that has read the certificate.
func (c *certificate) serve(served served) *serving {
	c.t.Helper()
	changed := make(chan struct{}, 10)
	files := certfile.New(certfile.Options{
		Certificate: c.certFile, Key: c.keyFile, Interval: 50 * time.Millisecond,
		OnChange: func(*tls.Certificate) { changed <- struct{}{} },
	})
	s := serveWith(c.t, server.Options{Certificates: files}, served)
	<-changed
	s.url = strings.Replace(s.url, "http://", "https://", 1)
	return s
}

// trust gives the client new connections that trust the certificate only.
func (c *certificate) trust(s *serving, config *tls.Config) {
	s.client.CloseIdleConnections()
	config.RootCAs = c.trusted
	s.client.Transport = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
}

func TestTLS(t *testing.T) {
	c := newCertificate(t)
	s := c.serve(newFixture(t).served)
	c.trust(s, &tls.Config{})
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.status != 200 || got.major != 2 {
		t.Errorf("HTTP/%d, status %d, %v", got.major, got.status, got.err)
	}
	c.trust(s, &tls.Config{NextProtos: []string{"http/1.1"}})
	s.client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.status != 200 || got.major != 1 {
		t.Errorf("HTTP/%d, status %d, %v", got.major, got.status, got.err)
	}
	c.trust(s, &tls.Config{MaxVersion: tls.VersionTLS12})
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.status != 200 {
		t.Errorf("TLS 1.2: status %d, %v", got.status, got.err)
	}
	outdated := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, NextProtos: []string{"http/1.1"}}
	c.trust(s, outdated)
	s.client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.err == nil {
		t.Errorf("TLS 1.1: status %d", got.status)
	}
	s.wantEnd(t)
}

func TestNothingIsServedBesidesTLS(t *testing.T) {
	s := newCertificate(t).serve(newFixture(t).served)
	s.url = strings.Replace(s.url, "https://", "http://", 1)
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.status == 200 || got.err == nil {
		t.Errorf("HTTP/1.1 without TLS: status %d", got.status)
	}
	s.useHTTP2(t)
	if got := s.receive(t.Context(), envelopeWith(ping, "", "")); got.err == nil {
		t.Errorf("HTTP/2 without TLS: status %d", got.status)
	}
	s.wantEnd(t)
}
