package certificates_test

import (
	"bytes"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"forrst.dev/lock-operator/certificates"
)

var (
	policy = certificates.DefaultPolicy()
	start  = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
)

const day = 24 * time.Hour

// world is an installation whose certificates are kept by a policy, pass by pass.
type world struct {
	t         *testing.T
	policy    certificates.Policy
	now       time.Time
	authority *certificates.Pair
	// names are the DNS names of the certificates.
	names [][]string
	leafs []*certificates.Pair
	// replaced are what was replaced by the last pass.
	replaced []*certificates.Pair
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, policy: policy, now: start, names: [][]string{{"webhook.ns.svc"}, {"facade.ns.svc", "facade.ns"}}, leafs: make([]*certificates.Pair, 2)}
	w.pass()
	w.wantTrusted()
	return w
}

// pass does what the controller does in one. It returns how many authorities and certificates it has made.
func (w *world) pass() (authorities, leafs int) {
	w.t.Helper()
	w.replaced = nil
	keep := func(present **certificates.Pair, kept *certificates.Pair, reason certificates.Reason, err error) int {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		if (kept == *present) != (reason == "") {
			w.t.Fatalf("the reason is %q", reason)
		}
		if reason == "" {
			return 0
		}
		w.replaced = append(w.replaced, *present)
		*present = kept
		return 1
	}
	authority, reason, err := w.policy.Authority(w.authority, "authority", slices.Concat(w.names...), w.now)
	authorities = keep(&w.authority, authority, reason, err)
	for index, names := range w.names {
		leaf, reason, err := w.policy.Leaf(w.authority, w.leafs[index], names, w.now)
		leafs += keep(&w.leafs[index], leaf, reason, err)
	}
	return authorities, leafs
}

// after lets time pass, makes a pass, and wants so many authorities and certificates to be made.
func (w *world) after(d time.Duration, authorities, leafs int) {
	w.t.Helper()
	w.now = w.now.Add(d)
	if madeAuthorities, madeLeafs := w.pass(); madeAuthorities != authorities || madeLeafs != leafs {
		w.t.Errorf("%s: made %d authorities and %d certificates, want %d and %d", w.now.Sub(start), madeAuthorities, madeLeafs, authorities, leafs)
	}
}

// wantTrusted wants every certificate to be valid for its names by the authority, now.
func (w *world) wantTrusted() {
	w.t.Helper()
	for _, leaf := range w.leafs {
		w.wantTrustedBy(w.authority, leaf)
	}
}

func (w *world) wantTrustedBy(authority, leaf *certificates.Pair) {
	w.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	for _, name := range leaf.Certificate.DNSNames {
		if _, err := leaf.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: w.now, DNSName: name}); err != nil {
			w.t.Errorf("%s: %s: %v", w.now.Format(time.DateOnly), name, err)
		}
	}
}

func TestTheFirstPassMakesAnAuthorityAndItsCertificates(t *testing.T) {
	w := newWorld(t)
	w.after(time.Minute, 0, 0)
	if got := w.authority.Certificate.NotAfter.Sub(start); got != policy.AuthorityLifetime {
		t.Errorf("the authority lives for %s", got)
	}
	for index, leaf := range w.leafs {
		if leaf.Certificate.IsCA || leaf.Certificate.CheckSignatureFrom(leaf.Certificate) == nil {
			t.Error("a certificate is its own authority")
		}
		if got := leaf.Certificate.NotAfter.Sub(start); got != policy.Lifetime || !slices.Equal(leaf.Certificate.DNSNames, w.names[index]) {
			t.Errorf("a certificate for %v lives for %s", leaf.Certificate.DNSNames, got)
		}
	}
}

func TestACertificateIsRenewedWhenAThirdOfItsLifeIsLeft(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Lifetime-(policy.Lifetime+time.Hour)/3, 0, 0)
	w.after(time.Second, 0, 2)
	w.wantTrusted()
}

// A client may have copied any of the certificates of the authority, and a process may serve what was replaced just now.
func TestWhoTrustsAnEarlierCertificateOfTheAuthorityNoticesNothing(t *testing.T) {
	w := newWorld(t)
	copies := []*certificates.Pair{w.authority}
	for w.now.Before(start.Add(30 * 365 * day)) {
		w.now = w.now.Add(20 * day)
		if authorities, _ := w.pass(); authorities > 0 {
			copies = append(copies, w.authority)
		}
		copies = slices.DeleteFunc(copies, func(copied *certificates.Pair) bool { return w.now.After(copied.Certificate.NotAfter) })
		for _, leaf := range slices.Concat(w.leafs, w.replaced) {
			if leaf.Certificate.IsCA {
				continue
			}
			for _, copied := range copies {
				w.wantTrustedBy(copied, leaf)
			}
		}
	}
	if len(copies) != 2 {
		t.Errorf("%d certificates of the authority are valid after 30 years, want the last two", len(copies))
	}
}

func TestOnlyALostAuthorityGivesWayToANewKey(t *testing.T) {
	w := newWorld(t)
	former := w.authority
	w.after(policy.AuthorityLifetime+day, 1, 2) // Nothing has run for ten years.
	if !bytes.Equal(w.authority.KeyPEM, former.KeyPEM) {
		t.Error("the authority that has ended has another key")
	}
	former, w.authority = w.authority, nil
	w.after(time.Minute, 1, 2)
	if bytes.Equal(w.authority.KeyPEM, former.KeyPEM) || bytes.Equal(w.authority.Certificate.RawSubject, former.Certificate.RawSubject) {
		t.Error("the new authority cannot be told from the lost one")
	}
	w.wantTrusted()
}

func TestCertificatesThatCannotBeServedAreIssuedAtOnce(t *testing.T) {
	stranger, err := certificates.NewAuthority("stranger", nil, start, policy.AuthorityLifetime)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := stranger.Issue([]string{"webhook.ns.svc"}, start, policy.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*world) *certificates.Pair{
		"none":                 func(*world) *certificates.Pair { return nil },
		"of a stranger":        func(*world) *certificates.Pair { return foreign },
		"another authority":    func(*world) *certificates.Pair { return stranger },
		"the authority itself": func(w *world) *certificates.Pair { return w.authority },
		"of another server":    func(w *world) *certificates.Pair { return w.leafs[1] },
		"of the key of the authority under another name": func(w *world) *certificates.Pair {
			renamed := *w.authority
			renamed.Certificate = new(*w.authority.Certificate)
			renamed.Certificate.RawSubject = stranger.Certificate.RawSubject
			issued, err := renamed.Issue([]string{"webhook.ns.svc"}, start, policy.Lifetime)
			if err != nil {
				t.Fatal(err)
			}
			return issued
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leafs[0] = change(w)
			w.after(time.Second, 0, 1)
			w.wantTrusted()
		})
	}
}

func TestAnAuthorityCannotIssueForOtherNamesAndAddresses(t *testing.T) {
	w := newWorld(t)
	roots := x509.NewCertPool()
	roots.AddCert(w.authority.Certificate)
	pair, err := w.authority.Issue([]string{"kubernetes.default.svc"}, start, policy.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, DNSName: "kubernetes.default.svc"}); err == nil {
		t.Error("the certificate of another server is valid")
	}
}

// Who trusts the authority by an earlier certificate refuses one with a name that this does not permit.
func TestAnotherNameIsPermittedAtOnceAndServedWithTheNextCertificate(t *testing.T) {
	w := newWorld(t)
	copied, first := w.authority, w.leafs[1]
	w.names[1] = append(w.names[1], "locks.example.com", "sub.facade.ns.svc")
	w.after(time.Minute, 1, 0)
	w.wantTrustedBy(copied, first)
	if !bytes.Equal(w.authority.KeyPEM, copied.KeyPEM) {
		t.Error("the authority has another key")
	}
	if got, want := w.authority.Certificate.PermittedDNSDomains, append(slices.Clone(copied.Certificate.PermittedDNSDomains), "locks.example.com"); !slices.Equal(got, want) {
		t.Errorf("the authority permits %v, want %v", got, want)
	}
	w.leafs[1] = nil
	w.after(time.Minute, 0, 1)
	if got := w.leafs[1].Certificate.DNSNames; !slices.Equal(got, w.names[1]) {
		t.Errorf("the certificate has the names %v", got)
	}
	w.wantTrusted()
	w.names[1] = w.names[1][:1]
	w.after(policy.Lifetime*3/4, 0, 2)
	if got := w.leafs[1].Certificate.DNSNames; !slices.Equal(got, w.names[1]) {
		t.Errorf("the certificate has the names %v", got)
	}
}

func TestTheClockMayJump(t *testing.T) {
	for _, jump := range []time.Duration{100 * day, -100 * day, 4000 * day, -4000 * day, 2600 * day} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t)
			key := w.authority.KeyPEM
			for _, d := range []time.Duration{jump, -jump} {
				w.now = w.now.Add(d)
				w.pass()
				w.wantTrusted()
			}
			w.after(time.Minute, 0, 0)
			if !bytes.Equal(w.authority.KeyPEM, key) {
				t.Error("the authority has another key")
			}
		})
	}
}

func TestPolicyValidate(t *testing.T) {
	for name, each := range map[string]struct {
		policy  certificates.Policy
		isValid bool
	}{
		"the default":                          {policy, true},
		"the shortest":                         {certificates.Policy{Lifetime: time.Hour, AuthorityLifetime: time.Hour}, true},
		"an authority that ends earlier":       {certificates.Policy{Lifetime: 90 * day, AuthorityLifetime: day}, true},
		"a certificate of less than an hour":   {certificates.Policy{Lifetime: time.Hour - 1, AuthorityLifetime: day}, false},
		"an authority with less than no life":  {certificates.Policy{Lifetime: day, AuthorityLifetime: -day}, false},
		"a certificate and an authority of 0s": {certificates.Policy{}, false},
	} {
		if err := each.policy.Validate(); (err == nil) != each.isValid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The alert on a certificate that expires soon judges by a quarter of its whole life. Its renewal comes before, even of the
// shortest one, and with time for the kubelet to bring the file.
func TestTheShortestCertificatesAreRenewedBeforeTheirAlert(t *testing.T) {
	const kubelet = 3 * time.Minute
	for _, shortest := range []certificates.Policy{
		{Lifetime: time.Hour, AuthorityLifetime: time.Hour}, {Lifetime: 90 * day, AuthorityLifetime: time.Hour}, {Lifetime: time.Hour, AuthorityLifetime: 90 * day},
	} {
		if err := shortest.Validate(); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		w.policy, w.authority = shortest, nil
		w.after(time.Minute, 1, 2)
		for w.now.Before(start.Add(8 * time.Hour)) {
			w.now = w.now.Add(time.Minute)
			w.pass()
			for _, leaf := range w.leafs {
				if leaf.Certificate.NotAfter.After(w.authority.Certificate.NotAfter) {
					t.Errorf("%+v: a certificate outlives its authority", shortest)
				}
			}
			for _, former := range w.replaced {
				life, left := former.Certificate.NotAfter.Sub(former.Certificate.NotBefore), former.Certificate.NotAfter.Sub(w.now)
				if left < life/4+kubelet {
					t.Errorf("%+v: one that lives for %s is renewed when %s is left", shortest, life, left)
				}
			}
		}
	}
}
