package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
)

func TestServingCertificateIsGoodForItsHostsOnly(t *testing.T) {
	authority := testAuthority(t)
	pair, err := authority.issueServing("server", "127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	certificate := parseCertificate(t, pair.certificate)

	for host, wantValid := range map[string]bool{
		"127.0.0.1":   true,
		"localhost":   true,
		"127.0.0.2":   false,
		"example.com": false,
	} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: trusting(authority), DNSName: host})
		if valid := err == nil; valid != wantValid {
			t.Errorf("valid for %s = %v, want %v: %v", host, valid, wantValid, err)
		}
	}
	if _, err := tls.X509KeyPair(pair.certificate, pair.key); err != nil {
		t.Errorf("the key does not belong to the certificate: %v", err)
	}
}

func TestClientCertificateNamesUserAndGroups(t *testing.T) {
	authority := testAuthority(t)
	pair, err := authority.issueClient("jane", "developers", "everyone")
	if err != nil {
		t.Fatal(err)
	}
	certificate := parseCertificate(t, pair.certificate)

	if got := certificate.Subject.CommonName; got != "jane" {
		t.Errorf("user = %q, want jane", got)
	}
	groups := slices.Sorted(slices.Values(certificate.Subject.Organization))
	if want := []string{"developers", "everyone"}; !slices.Equal(groups, want) {
		t.Errorf("groups = %q, want %q", groups, want)
	}
	if !acceptsClient(authority, certificate) {
		t.Error("its own authority does not accept it as a client")
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: trusting(authority)}); err == nil {
		t.Error("it may also pose as a server")
	}
}

func TestOnlyTheAPIServerReachesEtcd(t *testing.T) {
	credentials, err := issueCredentials()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range credentials.pairs {
		if name == serviceAccounts {
			continue // A bare key.
		}
		want := name == apiServerToEtcd
		if got := acceptsClient(credentials.etcd, parseCertificate(t, pair.certificate)); got != want {
			t.Errorf("etcd accepts the client %s: %v, want %v", name, got, want)
		}
	}
}

func TestOperatorIsItsServiceAccount(t *testing.T) {
	credentials, err := issueCredentials()
	if err != nil {
		t.Fatal(err)
	}
	subject := parseCertificate(t, credentials.pairs[operator].certificate).Subject
	if want := "system:serviceaccount:forrst-system:lock-operator"; subject.CommonName != want {
		t.Errorf("user = %q, want %q", subject.CommonName, want)
	}
	if slices.Contains(subject.Organization, "system:masters") {
		t.Error("the operator may do everything, so its RBAC rules are not tested")
	}
}

func testAuthority(t *testing.T) *authority {
	t.Helper()
	authority, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func parseCertificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM block in %q", text)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func trusting(authority *authority) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	return roots
}

func acceptsClient(authority *authority, certificate *x509.Certificate) bool {
	_, err := certificate.Verify(x509.VerifyOptions{
		Roots:     trusting(authority),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}
