package certificates

import (
	"bytes"
	"fmt"
	"time"
)

// Policy says how long certificates are valid. Each is replaced when a third of its own life is left.
type Policy struct {
	// Lifetime is that of a certificate, which ends with its authority at the latest, and AuthorityLifetime
	// that of an authority. Both are at least an hour.
	Lifetime, AuthorityLifetime time.Duration
}

// DefaultPolicy has certificates of 90 days and an authority of ten years.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{Lifetime: 90 * day, AuthorityLifetime: 3650 * day}
}

const (
	// minLifetime leaves ten minutes between the renewal of a certificate and its alert, for the kubelet to bring
	// the file: the one is due when a third is left of a life that has begun [backdate] before, the other fires
	// when a quarter is.
	minLifetime = time.Hour
	// renewalShare is the divisor of a life that gives what is left when it is to be renewed.
	renewalShare = 3
)

// Validate returns an error if a lifetime is too short.
func (p Policy) Validate() error {
	if shortest := min(p.Lifetime, p.AuthorityLifetime); shortest < minLifetime {
		return fmt.Errorf("%s is less than %.0fh: the alert would come before the renewed certificate", shortest, minLifetime.Hours())
	}
	return nil
}

// Reason says why something was replaced. Empty means that it was not.
type Reason string

// Authority returns what is to sign certificates for these DNS names, and why that is not the present authority. Nil for
// the present one means that there is none, or none that can be read: only then it returns one with a new key and this
// name.
func (p Policy) Authority(present *Pair, name string, dnsNames []string, now time.Time) (*Pair, Reason, error) {
	if present == nil {
		made, err := NewAuthority(name, dnsNames, now, p.AuthorityLifetime)
		return made, "there is none that can be used", err
	}
	reason := present.due(now)
	if reason == "" && len(present.forbidden(dnsNames)) > 0 {
		reason = "it permits too few names"
	}
	if reason == "" {
		return present, "", nil
	}
	extended, err := present.Extend(dnsNames, now, p.AuthorityLifetime)
	return extended, reason, err
}

// Leaf returns the certificate to serve, and why that is not the present one. Nil for the present one means that there
// is none, or none that can be read. The present one must have the first of the DNS names. If it has other ones besides,
// it stays until it is due: clients may not know yet that the authority permits more names.
func (p Policy) Leaf(authority, present *Pair, dnsNames []string, now time.Time) (*Pair, Reason, error) {
	reason := leafDue(authority, present, dnsNames[0], now)
	if reason == "" {
		return present, "", nil
	}
	issued, err := authority.Issue(dnsNames, now, p.Lifetime)
	return issued, reason, err
}

func leafDue(authority, present *Pair, dnsName string, now time.Time) Reason {
	switch {
	case present == nil:
		return "there is none that can be used"
	// Clients find the authority by its name, and authorities with one key may have several.
	case !bytes.Equal(present.Certificate.RawIssuer, authority.Certificate.RawSubject), present.Certificate.CheckSignatureFrom(authority.Certificate) != nil:
		return "another authority signs now"
	case present.Certificate.VerifyHostname(dnsName) != nil:
		return "it has another name"
	}
	return present.due(now)
}

// due says whether a certificate that can be used must be replaced because of the time.
func (p *Pair) due(now time.Time) Reason {
	begin, end := p.Certificate.NotBefore, p.Certificate.NotAfter
	switch {
	case now.Before(begin):
		return "it is not valid yet"
	case now.After(end.Add(-end.Sub(begin) / renewalShare)):
		return "it expires"
	}
	return ""
}
