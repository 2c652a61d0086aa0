package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy says how long certificates are valid, and how long clients have to learn of a new authority.
type Policy struct {
	// Lifetime is that of a certificate, at least four hours, AuthorityLifetime that of an authority. Both are
	// replaced when a third of it is left.
	Lifetime, AuthorityLifetime time.Duration
	// Overlap is how long a new authority is published before certificates of the former one are replaced,
	// and how long the former one is trusted after that. It must be longer than clients take to learn of
	// the one, and processes to serve the other. At most a quarter of Lifetime.
	Overlap time.Duration
}

// DefaultPolicy lets clients learn of a new authority for two weeks.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{Lifetime: 90 * day, AuthorityLifetime: 3650 * day, Overlap: 14 * day}
}

// WithDefaults returns the policy with each duration that is 0 replaced: by that of [DefaultPolicy], or by the
// nearest one that fits those that are set.
func (p Policy) WithDefaults() Policy {
	usual := DefaultPolicy()
	if p.Lifetime == 0 {
		p.Lifetime = usual.Lifetime
		if p.AuthorityLifetime != 0 {
			p.Lifetime = min(p.Lifetime, p.AuthorityLifetime/authorityShare)
		}
		p.Lifetime = max(p.Lifetime, overlapShare*p.Overlap)
	}
	if p.AuthorityLifetime == 0 {
		p.AuthorityLifetime = max(usual.AuthorityLifetime, authorityShare*p.Lifetime)
	}
	if p.Overlap == 0 {
		p.Overlap = min(usual.Overlap, p.Lifetime/overlapShare)
	}
	return p
}

const (
	// minLifetime keeps the renewal of a certificate before its alert. A certificate begins [backdate] before it is issued,
	// and the alert goes by what is left of all that: with four hours, it counts from 75 minutes before the end on, and the
	// renewal is due at 80.
	minLifetime = 4 * time.Hour
	// overlapShare is the least divisor of Lifetime that gives Overlap: a certificate that is to be renewed
	// has a third of its life left, which the overlap must not use up.
	overlapShare = 4
	// authorityShare is the same of AuthorityLifetime and Lifetime: an authority that is to be replaced must
	// outlive its last certificates.
	authorityShare = 4
	// renewalShare is the divisor of a life that gives what is left when it is to be renewed.
	renewalShare = 3
	// urgentShare is the divisor of Lifetime that gives what is left when a certificate is renewed although
	// not all clients may know the authority: the overlap has passed by then unless it was begun anew.
	urgentShare = 12
)

// Validate returns an error if the durations do not fit each other.
func (p Policy) Validate() error {
	switch {
	case p.Overlap <= 0 || p.Lifetime <= 0 || p.AuthorityLifetime <= 0:
		return errors.New("the lifetimes and the overlap must be more than 0s")
	case p.Lifetime < minLifetime:
		return fmt.Errorf("the lifetime of certificates, %s, must be at least %.0fh: the alert on a shorter one would come before its renewal", p.Lifetime, minLifetime.Hours())
	case p.Lifetime < overlapShare*p.Overlap:
		return fmt.Errorf("the lifetime of certificates must be at least %d times the overlap, %s", overlapShare, overlapShare*p.Overlap)
	case p.AuthorityLifetime < authorityShare*p.Lifetime:
		return fmt.Errorf("the lifetime of the authority must be at least %d times that of certificates, %s", authorityShare, authorityShare*p.Lifetime)
	}
	return nil
}

// Leaf is a certificate that a process serves.
type Leaf struct {
	// DNSNames are those that it must have.
	DNSNames []string
	// Pair is the one that there is. Nil means that there is none, or none that can be read.
	Pair *Pair
	// IsRequested says that a user wants another one.
	IsRequested bool
}

// State is what there is.
type State struct {
	// Authority signs. Nil means that there is none, or none that can be read.
	Authority *Pair
	// Former are other authorities that were kept because clients must trust them.
	Former []*x509.Certificate
	// Published is what clients were told to trust, since PublishedAt. Zero means that this is not known.
	Published   []*x509.Certificate
	PublishedAt time.Time
	// IsInjected says that API servers trust all of it.
	IsInjected bool
	// IsRequested says that a user wants another authority.
	IsRequested bool
	Leafs       []Leaf
}

// Reason says why something must be replaced now. Empty means that it need not be.
type Reason string

// AuthorityDue says whether there must be another authority. One that can be used is not replaced again
// before clients trust it alone.
func (p Policy) AuthorityDue(s *State, now time.Time) Reason {
	switch {
	case s.Authority == nil:
		return "there is none that can be used"
	case !isValid(s.Authority.Certificate, now):
		return "it is not valid at this time"
	case len(s.Published) != 1 || len(p.Bundle(s, now)) > 1 || !p.isKnown(s, now):
		return ""
	case now.After(renewal(s.Authority.Certificate, p.AuthorityLifetime)):
		return "it expires"
	case outlives(s.Authority.Certificate, p.AuthorityLifetime, now):
		return "it lives longer than an authority is to"
	case s.IsRequested:
		return "a user has asked for it"
	}
	for _, leaf := range s.Leafs {
		for _, name := range leaf.DNSNames {
			if !permits(s.Authority.Certificate, name) {
				return Reason("it does not permit the name " + name)
			}
		}
	}
	return ""
}

// Bundle returns the authorities that clients must trust: first the one that signs, then the former ones as
// long as processes may serve their certificates. If the former ones were lost, it takes those that were
// published and have issued what is served.
func (p Policy) Bundle(s *State, now time.Time) []*x509.Certificate {
	var trusted []*x509.Certificate
	if s.Authority != nil {
		trusted = append(trusted, s.Authority.Certificate)
	}
	isServed := !p.isSettled(s, now)
	for _, former := range s.Former {
		if isServed && isValid(former, now) && !contains(trusted, former) {
			trusted = append(trusted, former)
		}
	}
	for _, published := range s.Published {
		if isValid(published, now) && !contains(trusted, published) && hasIssuedAny(published, s.Leafs) {
			trusted = append(trusted, published)
		}
	}
	return trusted
}

// LeafDue says whether the certificate must be issued anew.
func (p Policy) LeafDue(s *State, leaf *Leaf, now time.Time) Reason {
	switch {
	case leaf.Pair == nil:
		return "there is none that can be used"
	case !isValid(leaf.Pair.Certificate, now):
		return "it is not valid at this time"
	case leaf.Pair.Certificate.IsCA:
		return "it is that of an authority"
	case !slices.ContainsFunc(p.Bundle(s, now), leaf.isOf):
		return "no trusted authority has issued it"
	case !leaf.isOf(s.Authority.Certificate):
		// Its key is gone, so this is the one reason that can wait.
		switch {
		case p.isKnown(s, now) && s.IsInjected:
			return "another authority signs now"
		case now.After(leaf.Pair.Certificate.NotAfter.Add(-p.Lifetime / urgentShare)):
			return "it expires before its new authority is known everywhere"
		}
		return ""
	case !slices.Equal(leaf.Pair.Certificate.DNSNames, leaf.permittedNames(s.Authority.Certificate)):
		return "it has other names"
	case now.After(renewal(leaf.Pair.Certificate, p.Lifetime)):
		return "it expires"
	case outlives(leaf.Pair.Certificate, p.Lifetime, now):
		return "it lives longer than a certificate is to"
	case leaf.IsRequested:
		return "a user has asked for it"
	}
	return ""
}

// Renew returns a new certificate of the authority that signs, for those of the names that it permits.
func (p Policy) Renew(s *State, leaf *Leaf, now time.Time) (*Pair, error) {
	return s.Authority.Issue(leaf.permittedNames(s.Authority.Certificate), now, p.Lifetime)
}

// isKnown reports whether clients have had time to learn of the authority that signs.
func (p Policy) isKnown(s *State, now time.Time) bool {
	return contains(s.Published, s.Authority.Certificate) && !s.PublishedAt.IsZero() && !now.Before(s.PublishedAt.Add(p.Overlap))
}

// isSettled reports whether every process has had time to serve what the present authority has issued.
func (p Policy) isSettled(s *State, now time.Time) bool {
	if s.Authority == nil {
		return false
	}
	return !slices.ContainsFunc(s.Leafs, func(leaf Leaf) bool {
		return !leaf.isOf(s.Authority.Certificate) || now.Before(leaf.Pair.Certificate.NotBefore.Add(backdate+p.Overlap))
	})
}

func (l *Leaf) isOf(authority *x509.Certificate) bool {
	return l.Pair != nil && l.Pair.Certificate.CheckSignatureFrom(authority) == nil
}

func (l *Leaf) permittedNames(authority *x509.Certificate) []string {
	return slices.DeleteFunc(slices.Clone(l.DNSNames), func(name string) bool { return !permits(authority, name) })
}

func hasIssuedAny(authority *x509.Certificate, leafs []Leaf) bool {
	return slices.ContainsFunc(leafs, func(leaf Leaf) bool { return leaf.isOf(authority) })
}

func permits(authority *x509.Certificate, name string) bool {
	return len(authority.PermittedDNSDomains) == 0 || slices.ContainsFunc(authority.PermittedDNSDomains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+strings.TrimPrefix(domain, "."))
	})
}

func isValid(certificate *x509.Certificate, now time.Time) bool {
	return !now.Before(certificate.NotBefore) && now.Before(certificate.NotAfter)
}

// renewal returns when a certificate is to be replaced that was meant to live so long. One of another issuer
// may live shorter.
func renewal(certificate *x509.Certificate, lifetime time.Duration) time.Time {
	life := min(lifetime, certificate.NotAfter.Sub(certificate.NotBefore))
	return certificate.NotAfter.Add(-life / renewalShare)
}

// outlives reports whether a certificate lives longer than one that would be issued now: the lifetime was shortened since. The
// clock of its issuer may have been ahead.
func outlives(certificate *x509.Certificate, lifetime time.Duration, now time.Time) bool {
	return certificate.NotAfter.Sub(now) > lifetime+backdate
}
