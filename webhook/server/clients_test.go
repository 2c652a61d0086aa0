package server_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/webhook/server"
)

func TestOnlyClientsWithACertificateOfTheAuthorityAreServed(t *testing.T) {
	files, issued := authority(t)
	_, foreign := authority(t)
	cases := map[string]struct {
		names        []string
		certificates []tls.Certificate
		isServed     bool
	}{
		"with the certificate":             {certificates: []tls.Certificate{issued}, isServed: true},
		"with a name that is allowed":      {names: []string{"other", admissionclient.Name}, certificates: []tls.Certificate{issued}, isServed: true},
		"without a certificate":            {},
		"with that of another authority":   {certificates: []tls.Certificate{foreign}},
		"with a name that is not allowed":  {names: []string{"other"}, certificates: []tls.Certificate{issued}},
		"without one where names are told": {names: []string{admissionclient.Name}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var reviews atomic.Int64
			w := start(t, server.Options{ClientCA: files.Authority, ClientNames: test.names}, func(http.ResponseWriter, *http.Request) { reviews.Add(1) })
			code, _, err := w.post(w.client(1, test.certificates...), strings.NewReader("{}"))
			if test.isServed {
				if code != http.StatusOK || reviews.Load() != 1 {
					t.Errorf("refused: status %d, %v", code, err)
				}
				return
			}
			if err == nil || reviews.Load() != 0 {
				t.Errorf("served: status %d, %d reviews", code, reviews.Load())
			}
			if got := w.refused("certificate"); got != 1 {
				t.Errorf("%v refusals are counted", got)
			}
		})
	}
}

// The handshake is over before a client can send anything that the server reads.
func TestAClientWithoutACertificateIsRefusedInTheHandshake(t *testing.T) {
	files, _ := authority(t)
	w := start(t, server.Options{ClientCA: files.Authority}, ok)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(w.url, "https://"), path))
	if err == nil {
		_ = connection.Close() // The test fails below.
	}
	if err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
		t.Errorf("got %v, want an alert of the handshake", err)
	}
}

func TestTheAuthorityIsReadAgainWhenItChanges(t *testing.T) {
	former, formerlyIssued := authority(t)
	next, issued := authority(t)
	w := start(t, server.Options{ClientCA: former.Authority}, ok)
	if _, _, err := w.post(w.client(1, issued), strings.NewReader("{}")); err == nil {
		t.Fatal("a certificate of an unknown authority was accepted")
	}
	content, err := os.ReadFile(next.Authority)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(former.Authority, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, _, err = w.post(w.client(1, issued), strings.NewReader("{}")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a certificate of the new authority is still refused: %v", err)
		}
	}
	if _, _, err := w.post(w.client(1, formerlyIssued), strings.NewReader("{}")); err == nil {
		t.Error("a certificate of the former authority is still accepted")
	}
}

func TestTheFileOfTheAuthorityMustHaveACertificate(t *testing.T) {
	for name, content := range map[string]string{"missing": "", "empty": "-", "without a certificate": "authority"} {
		t.Run(name, func(t *testing.T) {
			options := server.Options{Address: freeAddress(t), CertDir: servingFiles(t), ClientCA: t.TempDir() + "/ca.crt"}
			if content != "" {
				if err := os.WriteFile(options.ClientCA, []byte(strings.Trim(content, "-")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			served, err := server.New(options)
			if err != nil {
				t.Fatal(err)
			}
			if err := served.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "the authority of the webhook's clients") {
				t.Errorf("got %v", err)
			}
		})
	}
}
