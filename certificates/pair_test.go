package certificates_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

func TestBrokenContentsAreNoPair(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	leaf, err := authority.Issue([]string{"facade.ns.svc"}, start, policy.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	for name, contents := range map[string][2][]byte{
		"nothing":             {},
		"no PEM":              {[]byte("certificate"), []byte("key")},
		"PEM of something":    {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), authority.KeyPEM},
		"a key of another":    {authority.CertificatePEM, other.KeyPEM},
		"a certificate twice": {authority.CertificatePEM, authority.CertificatePEM},
		"half a key":          {authority.CertificatePEM, authority.KeyPEM[:len(authority.KeyPEM)/2]},
	} {
		_, err := certificates.ParsePair(contents[0], contents[1])
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		secret := strings.Split(string(authority.KeyPEM), "\n")[1][:20]
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the key", name)
		}
	}
	if _, err := certificates.ParseAuthority(leaf.CertificatePEM, leaf.KeyPEM); err == nil {
		t.Error("a certificate of a server is taken as an authority")
	}
}

func TestNothingButTheCertificateIsPublished(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	pair, err := certificates.ParseAuthority(slices.Concat(authority.CertificatePEM, authority.KeyPEM, other.CertificatePEM), authority.KeyPEM)
	if err != nil || !bytes.Equal(pair.CertificatePEM, authority.CertificatePEM) {
		t.Errorf("%v, %s", err, pair.CertificatePEM)
	}
}

// An authority of another issuer, which is taken over, has other keys and constraints.
func TestAnExtendedAuthorityIsTheSameButForItsTime(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "theirs"}, NotBefore: start.AddDate(-1, 0, 0), NotAfter: start.AddDate(0, 1, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, SubjectKeyId: []byte("any"),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := certificates.ParseAuthority(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	if err != nil {
		t.Fatal(err)
	}
	for name, former := range map[string]*certificates.Pair{"own": newAuthority(t), "of another issuer": theirs} {
		extended, err := former.Extend([]string{"facade.ns.svc"}, start, policy.AuthorityLifetime)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := certificates.ParseAuthority(extended.CertificatePEM, extended.KeyPEM); err != nil {
			t.Error(err)
		}
		is, was := *extended.Certificate, *former.Certificate
		if is.SerialNumber.Cmp(was.SerialNumber) == 0 || !is.NotBefore.Equal(start.Add(-time.Hour)) || !is.NotAfter.Equal(start.Add(policy.AuthorityLifetime)) {
			t.Errorf("%s: %s, from %s to %s", name, is.SerialNumber, is.NotBefore, is.NotAfter)
		}
		is.SerialNumber, is.NotBefore, is.NotAfter = was.SerialNumber, was.NotBefore, was.NotAfter
		is.Raw, is.RawTBSCertificate, is.Signature = was.Raw, was.RawTBSCertificate, was.Signature
		if !reflect.DeepEqual(is, was) {
			t.Errorf("%s: got %+v, want %+v", name, is, was)
		}
	}
}

func FuzzParse(f *testing.F) {
	authority := newAuthority(f)
	f.Add(authority.CertificatePEM, authority.KeyPEM)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		if pair, err := certificates.ParseAuthority(certificate, key); err == nil && !pair.Certificate.IsCA {
			t.Error("not an authority")
		}
		present, _ := certificates.ParsePair(certificate, key)
		if _, _, err := policy.Leaf(authority, present, []string{"facade.ns.svc"}, start); err != nil {
			t.Error(err)
		}
	})
}

func TestTheValidityIsMeasuredOnceThereIsACertificate(t *testing.T) {
	var current *x509.Certificate
	of := certificates.NewValidityMetrics("facade", func() *x509.Certificate { return current })
	if got := testutil.CollectAndCount(of); got != 0 {
		t.Errorf("%d series of no certificate", got)
	}
	current = &x509.Certificate{NotBefore: time.Unix(100, 0), NotAfter: time.Unix(200, 0)}
	want := exposition.Of(&metric.CertificateNotBefore, metric.CertificateNotBefore.Name+"{certificate=\"facade\"} 100\n") +
		exposition.Of(&metric.CertificateExpiry, metric.CertificateExpiry.Name+"{certificate=\"facade\"} 200\n")
	if err := testutil.CollectAndCompare(of, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func newAuthority(tb testing.TB) *certificates.Pair {
	tb.Helper()
	made, err := certificates.NewAuthority("authority", []string{"facade.ns.svc"}, start, policy.AuthorityLifetime)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}
