package certificates_test

import (
	"bytes"
	"crypto/x509"
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

func TestABundleHasAuthoritiesOnce(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	leaf, err := authority.Issue([]string{"facade.ns.svc"}, start, policy.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	text := slices.Concat([]byte("# a comment\n"), authority.CertificatePEM, leaf.CertificatePEM, other.CertificatePEM,
		[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), authority.CertificatePEM, authority.KeyPEM, []byte("rest"))
	got := certificates.FormatBundle(certificates.ParseBundle(text))
	if !bytes.Equal(got, slices.Concat(authority.CertificatePEM, other.CertificatePEM)) {
		t.Errorf("got %s", got)
	}
	if bytes.Contains(got, []byte("PRIVATE")) {
		t.Error("the bundle has a key")
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
		state := &certificates.State{Former: certificates.ParseBundle(certificate), Leafs: []certificates.Leaf{{DNSNames: []string{"a"}}}}
		if policy.AuthorityDue(state, start) == "" {
			t.Error("nothing signs")
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
