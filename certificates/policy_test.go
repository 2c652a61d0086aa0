package certificates_test

import (
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

// world is an installation whose certificates are kept by the policy, pass by pass.
type world struct {
	t     *testing.T
	now   time.Time
	state certificates.State
	// passes, authorities and leafs count what was done.
	authorities, leafs int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: start, state: certificates.State{IsInjected: true, Leafs: []certificates.Leaf{
		{DNSNames: []string{"webhook.ns.svc"}}, {DNSNames: []string{"facade.ns.svc", "facade.ns"}},
	}}}
	w.pass()
	w.wantTrusted()
	return w
}

// pass does what the controller does in one.
func (w *world) pass() {
	w.t.Helper()
	s := &w.state
	if policy.AuthorityDue(s, w.now) != "" {
		pair, err := certificates.NewAuthority("authority", []string{"webhook.ns.svc", "facade.ns.svc", "facade.ns"}, w.now, policy.AuthorityLifetime)
		if err != nil {
			w.t.Fatal(err)
		}
		if s.Authority != nil {
			s.Former = append(s.Former, s.Authority.Certificate)
		}
		s.Authority, s.IsRequested = pair, false
		w.authorities++
	}
	trusted := policy.Bundle(s, w.now)
	s.Former = trusted
	if !slices.EqualFunc(s.Published, trusted, (*x509.Certificate).Equal) || s.PublishedAt.After(w.now) {
		s.Published, s.PublishedAt = trusted, w.now
	}
	for index := range s.Leafs {
		leaf := &s.Leafs[index]
		if policy.LeafDue(s, leaf, w.now) == "" {
			continue
		}
		pair, err := policy.Renew(s, leaf, w.now)
		if err != nil {
			w.t.Fatal(err)
		}
		leaf.Pair, leaf.IsRequested = pair, false
		w.leafs++
	}
}

// after lets time pass, and makes a pass.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	w.pass()
}

// wantTrusted wants every certificate to be valid for its names by what was published, now.
func (w *world) wantTrusted() {
	w.t.Helper()
	w.wantTrustedBy(w.state.Published)
}

func (w *world) wantTrustedBy(authorities []*x509.Certificate) {
	w.t.Helper()
	roots := x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	for _, leaf := range w.state.Leafs {
		for _, name := range leaf.DNSNames {
			if _, err := leaf.Pair.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: w.now, DNSName: name}); err != nil {
				w.t.Errorf("%s: %s: %v", w.now.Format(time.DateOnly), name, err)
			}
		}
	}
}

// wantDone wants so many authorities and certificates to have been made since the last time.
func (w *world) wantDone(authorities, leafs int) {
	w.t.Helper()
	if w.authorities != authorities || w.leafs != leafs {
		w.t.Errorf("%s: made %d authorities and %d certificates, want %d and %d", w.now.Sub(start), w.authorities, w.leafs, authorities, leafs)
	}
	w.authorities, w.leafs = 0, 0
}

func TestTheFirstPassMakesAnAuthorityAndItsCertificates(t *testing.T) {
	w := newWorld(t)
	w.wantDone(1, 2)
	w.after(time.Minute)
	w.wantDone(0, 0)
	authority := w.state.Authority.Certificate
	if got := authority.NotAfter.Sub(start); got != policy.AuthorityLifetime {
		t.Errorf("the authority lives for %s", got)
	}
	for _, leaf := range w.state.Leafs {
		if leaf.Pair.Certificate.IsCA || leaf.Pair.Certificate.CheckSignatureFrom(leaf.Pair.Certificate) == nil {
			t.Error("a certificate is its own authority")
		}
	}
}

func TestACertificateIsRenewedWhenAThirdOfItsLifeIsLeft(t *testing.T) {
	w := newWorld(t)
	w.wantDone(1, 2)
	w.after(policy.Lifetime * 2 / 3)
	w.wantDone(0, 0)
	w.after(time.Second)
	w.wantDone(0, 2)
	w.wantTrusted()
}

// Alerts go by the life of a certificate, so one of before a change of the policy must not stay.
func TestWhatLivesLongerThanItIsToIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Overlap)
	shorter := certificates.Policy{Lifetime: policy.Lifetime / 2, AuthorityLifetime: policy.AuthorityLifetime / 2, Overlap: policy.Overlap / 2}
	for _, each := range []struct {
		policy certificates.Policy
		isDue  bool
	}{{policy, false}, {shorter, true}} {
		if reason := each.policy.LeafDue(&w.state, &w.state.Leafs[0], w.now); (reason != "") != each.isDue {
			t.Errorf("with a lifetime of %s the certificate is due: %q", each.policy.Lifetime, reason)
		}
		if reason := each.policy.AuthorityDue(&w.state, w.now); (reason != "") != each.isDue {
			t.Errorf("with a lifetime of %s the authority is due: %q", each.policy.AuthorityLifetime, reason)
		}
	}
	w.state.Leafs[0].Pair.Certificate.NotAfter = w.now.Add(policy.Lifetime + time.Minute)
	if reason := policy.LeafDue(&w.state, &w.state.Leafs[0], w.now); reason != "" {
		t.Errorf("a clock that was ahead by a minute makes it due: %s", reason)
	}
}

func TestClientsTrustANewAuthorityBeforeItsCertificatesAreServed(t *testing.T) {
	w := newWorld(t)
	former := w.state.Authority.Certificate
	w.wantDone(1, 2)
	w.after(policy.Overlap)
	w.state.IsRequested = true
	w.after(time.Second)
	w.wantDone(1, 0)
	if w.state.Authority.Certificate.Equal(former) || len(w.state.Published) != 2 || !w.state.Published[0].Equal(w.state.Authority.Certificate) {
		t.Fatal("the new authority is not published before the former one")
	}
	w.wantTrustedBy([]*x509.Certificate{former})
	w.after(policy.Overlap - time.Second)
	w.wantDone(0, 0)
	w.after(time.Second)
	w.wantDone(0, 2)
	if len(w.state.Published) != 2 {
		t.Fatal("the former authority is dropped while processes may serve its certificates")
	}
	w.wantTrustedBy(w.state.Published[:1])
	w.after(policy.Overlap - time.Second)
	if len(w.state.Published) != 2 {
		t.Fatal("the former authority is dropped early")
	}
	w.after(time.Second)
	if len(w.state.Published) != 1 || !w.state.Published[0].Equal(w.state.Authority.Certificate) {
		t.Fatal("the former authority is kept")
	}
	w.wantDone(0, 0)
	w.wantTrusted()
}

func TestNoCertificateIsExchangedWhileAnAPIServerMayNotTrustItsAuthority(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Overlap)
	w.state.IsRequested = true
	w.pass()
	w.wantDone(2, 2)
	w.state.IsInjected = false
	w.after(policy.Overlap)
	w.wantDone(0, 0)
	// Before it expires, it is better to risk it.
	w.after(policy.Lifetime*11/12 - 2*policy.Overlap)
	w.wantDone(0, 0)
	w.after(time.Second)
	w.wantDone(0, 2)
}

func TestARequestWaitsForTheRotationThatIsUnderWay(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Overlap)
	w.wantDone(1, 2)
	for range 2 {
		w.state.IsRequested = true
		w.pass()
	}
	w.wantDone(1, 0)
	w.after(policy.Overlap)
	w.wantDone(0, 2)
	w.after(policy.Overlap) // The former one is dropped, which clients are told.
	w.wantDone(0, 0)
	if !w.state.IsRequested {
		t.Fatal("the request is lost")
	}
	w.after(policy.Overlap)
	w.wantDone(1, 0)
}

func TestARequestIssuesACertificateOfTheSameAuthorityAtOnce(t *testing.T) {
	w := newWorld(t)
	w.wantDone(1, 2)
	w.state.Leafs[1].IsRequested = true
	w.after(time.Second)
	w.wantDone(0, 1)
	w.wantTrusted()
}

func TestTheAuthorityIsReplacedWhenAThirdOfItsLifeIsLeft(t *testing.T) {
	w := newWorld(t)
	made := 0
	for w.now.Before(start.Add(30 * 365 * day)) {
		published := w.state.Published
		w.after(7 * day)
		// Clients that have read the authorities a week before trust what is served now, and the other way round.
		w.wantTrustedBy(published)
		w.wantTrusted()
		made += w.authorities
		w.authorities = 0
	}
	if made != 5 {
		t.Errorf("made %d authorities in 30 years", made)
	}
}

func TestALostAuthorityDoesNotBreakWhatIsServed(t *testing.T) {
	for name, lose := range map[string]func(*certificates.State){
		"all of the Secret":    func(s *certificates.State) { s.Authority, s.Former = nil, nil },
		"the key of it":        func(s *certificates.State) { s.Authority = nil },
		"with another request": func(s *certificates.State) { s.Authority, s.Former, s.IsRequested = nil, nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.after(policy.Overlap)
			w.wantDone(1, 2)
			former := w.state.Authority.Certificate
			lose(&w.state)
			w.after(time.Minute)
			w.wantDone(1, 0)
			w.wantTrustedBy([]*x509.Certificate{former})
			w.wantTrusted()
			w.after(policy.Overlap)
			w.wantDone(0, 2)
			w.wantTrusted()
		})
	}
}

func TestAPublicationThatIsLostBeginsTheOverlapAnew(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Overlap)
	w.state.IsRequested = true
	w.pass()
	w.wantDone(2, 2)
	w.now = w.now.Add(policy.Overlap)
	w.state.Published, w.state.PublishedAt = nil, time.Time{}
	w.pass()
	w.wantDone(0, 0)
	w.after(policy.Overlap)
	w.wantDone(0, 2)
}

func TestAPublicationAtAnUnknownTimeIsNoPublication(t *testing.T) {
	w := newWorld(t)
	w.state.PublishedAt = time.Time{}
	w.state.IsRequested = true
	if due := policy.AuthorityDue(&w.state, start.Add(policy.Overlap)); due != "" {
		t.Error(due)
	}
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
	for name, pair := range map[string]*certificates.Pair{"none": nil, "of a stranger": foreign, "an authority": stranger} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.wantDone(1, 2)
			w.state.Leafs[0].Pair = pair
			w.after(time.Second)
			w.wantDone(0, 1)
			w.wantTrusted()
		})
	}
	t.Run("the authority itself", func(t *testing.T) {
		w := newWorld(t)
		w.wantDone(1, 2)
		w.state.Leafs[0].Pair = w.state.Authority
		w.after(time.Second)
		w.wantDone(0, 1)
	})
}

func TestAnotherNameNeedsAnAuthorityThatPermitsIt(t *testing.T) {
	w := newWorld(t)
	w.after(policy.Overlap)
	w.wantDone(1, 2)
	w.state.Leafs[1].DNSNames = []string{"facade.ns.svc"}
	w.after(time.Second)
	w.wantDone(0, 1)
	w.state.Leafs[0].DNSNames = append(w.state.Leafs[0].DNSNames, "locks.example.com")
	if due := policy.AuthorityDue(&w.state, w.now.Add(policy.Overlap)); due != "it does not permit the name locks.example.com" {
		t.Errorf("due: %q", due)
	}
	pair, err := policy.Renew(&w.state, &w.state.Leafs[0], w.now)
	if err != nil || !slices.Equal(pair.Certificate.DNSNames, []string{"webhook.ns.svc"}) {
		t.Errorf("%v, %v", pair, err)
	}
}

func TestAnAuthorityCannotIssueForOtherNamesAndAddresses(t *testing.T) {
	w := newWorld(t)
	roots := x509.NewCertPool()
	roots.AddCert(w.state.Authority.Certificate)
	pair, err := w.state.Authority.Issue([]string{"kubernetes.default.svc"}, start, policy.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, DNSName: "kubernetes.default.svc"}); err == nil {
		t.Error("the certificate of another server is valid")
	}
}

func TestTheClockMayJump(t *testing.T) {
	for _, jump := range []time.Duration{100 * day, -100 * day, 4000 * day, -4000 * day, 2600 * day} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t)
			w.after(policy.Overlap)
			w.after(jump)
			w.wantTrusted()
			w.after(-jump)
			w.wantTrusted()
			w.authorities, w.leafs = 0, 0
			w.after(time.Minute)
			w.wantDone(0, 0)
			w.after(policy.Overlap)
			w.wantTrusted()
			if got := len(w.state.Published); got > 2 {
				t.Errorf("%d authorities are trusted", got)
			}
		})
	}
}

func TestPolicyValidate(t *testing.T) {
	if err := policy.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*certificates.Policy){
		"no overlap":                        func(p *certificates.Policy) { p.Overlap = 0 },
		"an overlap of most of a life":      func(p *certificates.Policy) { p.Overlap = p.Lifetime/4 + 1 },
		"an authority that hardly outlives": func(p *certificates.Policy) { p.AuthorityLifetime = 4*p.Lifetime - 1 },
		"a certificate of hours": func(p *certificates.Policy) {
			p.Lifetime, p.Overlap = 4*time.Hour-1, time.Hour/2
		},
		"a certificate without a life":        func(p *certificates.Policy) { p.Lifetime = 0 },
		"an authority with less than no life": func(p *certificates.Policy) { p.AuthorityLifetime = -day },
	} {
		changed := policy
		change(&changed)
		if changed.Validate() == nil {
			t.Errorf("%s: valid", name)
		}
	}
}

// The alert on a certificate that expires soon judges by a quarter of its whole life. Its renewal comes before, even of the
// shortest one, and with time for the kubelet to bring the file.
func TestTheShortestCertificateIsRenewedBeforeItsAlert(t *testing.T) {
	shortest := certificates.Policy{Lifetime: 4 * time.Hour}.WithDefaults()
	if err := shortest.Validate(); err != nil {
		t.Fatal(err)
	}
	authority, err := certificates.NewAuthority("authority", []string{"facade.ns.svc"}, start, shortest.AuthorityLifetime)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Issue([]string{"facade.ns.svc"}, start, shortest.Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	life := leaf.Certificate.NotAfter.Sub(leaf.Certificate.NotBefore)
	renewed := leaf.Certificate.NotAfter.Add(-life/4 - 3*time.Minute)
	state := &certificates.State{
		Authority: authority, Published: []*x509.Certificate{authority.Certificate}, PublishedAt: start, IsInjected: true,
		Leafs: []certificates.Leaf{{DNSNames: []string{"facade.ns.svc"}, Pair: leaf}},
	}
	if reason := shortest.LeafDue(state, &state.Leafs[0], renewed); reason != "it expires" {
		t.Errorf("three minutes before the alert: %q", reason)
	}
}

func TestPolicyWithDefaults(t *testing.T) {
	for name, test := range map[string]struct{ set, want certificates.Policy }{
		"nothing is set": {want: certificates.DefaultPolicy()},
		"a short lifetime": {
			set:  certificates.Policy{Lifetime: 30 * day},
			want: certificates.Policy{Lifetime: 30 * day, AuthorityLifetime: 3650 * day, Overlap: 30 * day / 4},
		},
		"a long lifetime": {
			set:  certificates.Policy{Lifetime: 1000 * day},
			want: certificates.Policy{Lifetime: 1000 * day, AuthorityLifetime: 4000 * day, Overlap: 14 * day},
		},
		"a short life of the authority": {
			set:  certificates.Policy{AuthorityLifetime: 160 * day},
			want: certificates.Policy{Lifetime: 40 * day, AuthorityLifetime: 160 * day, Overlap: 10 * day},
		},
		"a long overlap": {
			set:  certificates.Policy{Overlap: 30 * day},
			want: certificates.Policy{Lifetime: 120 * day, AuthorityLifetime: 3650 * day, Overlap: 30 * day},
		},
		"an overlap and an authority for it": {
			set:  certificates.Policy{AuthorityLifetime: 480 * day, Overlap: 30 * day},
			want: certificates.Policy{Lifetime: 120 * day, AuthorityLifetime: 480 * day, Overlap: 30 * day},
		},
		"the least": {
			set:  certificates.Policy{Lifetime: 4 * time.Hour},
			want: certificates.Policy{Lifetime: 4 * time.Hour, AuthorityLifetime: 3650 * day, Overlap: time.Hour},
		},
		"all is set": {
			set:  certificates.Policy{Lifetime: 4 * day, AuthorityLifetime: 16 * day, Overlap: day},
			want: certificates.Policy{Lifetime: 4 * day, AuthorityLifetime: 16 * day, Overlap: day},
		},
	} {
		got := test.set.WithDefaults()
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
