package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// backdate is how long before it is issued a certificate is valid from, for clients whose clocks are behind.
const backdate = time.Hour

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Pair is a certificate with its key.
type Pair struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	// CertificatePEM has Certificate and nothing else, KeyPEM has Key.
	CertificatePEM, KeyPEM []byte
}

// ParsePair returns the certificate and the key that belongs to it, or an error, which does not show the key.
func ParsePair(certificate, key []byte) (*Pair, error) {
	parsed, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	alone := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: parsed.Leaf.Raw})
	return &Pair{Certificate: parsed.Leaf, Key: signer, CertificatePEM: alone, KeyPEM: key}, nil
}

// ParseAuthority is [ParsePair] for an authority, which may sign other certificates. One that another authority
// has issued does not count: clients would need that one, too.
func ParseAuthority(certificate, key []byte) (*Pair, error) {
	pair, err := ParsePair(certificate, key)
	if err != nil {
		return nil, err
	}
	if !pair.Certificate.IsCA || pair.Certificate.CheckSignatureFrom(pair.Certificate) != nil {
		return nil, errors.New("the certificate is not that of an authority")
	}
	return pair, nil
}

// NewAuthority returns an authority with a new key. It can issue certificates for servers of these DNS names,
// and no others, even if its key is stolen.
func NewAuthority(name string, dnsNames []string, now time.Time, lifetime time.Duration) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of an authority: %w", err)
	}
	permitted := slices.Sorted(slices.Values(dnsNames))
	template := &x509.Certificate{
		// Clients with several authorities find the right one faster, and people can tell them apart.
		Subject:                     pkix.Name{CommonName: name + " " + strings.ToLower(rand.Text()[:8])},
		NotBefore:                   now.Add(-backdate),
		NotAfter:                    now.Add(lifetime),
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomains:         slices.Compact(permitted),
		PermittedDNSDomainsCritical: true,
		// Constraints of DNS names say nothing of addresses.
		ExcludedIPRanges: []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		},
	}
	return sign(template, template, key, key)
}

// Extend returns the authority with an end of its own, which permits these DNS names besides those that it permits. It keeps
// key and name, so that clients which trust either certificate accept what both have issued for what they permit.
func (p *Pair) Extend(dnsNames []string, now time.Time, lifetime time.Duration) (*Pair, error) {
	template := *p.Certificate
	template.SerialNumber = nil // Another one is drawn.
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	template.PermittedDNSDomains = slices.Concat(p.Certificate.PermittedDNSDomains, p.forbidden(dnsNames))
	return sign(&template, &template, p.Key, p.Key)
}

// forbidden returns those of the DNS names that the authority cannot issue certificates for.
func (p *Pair) forbidden(dnsNames []string) []string {
	domains := p.Certificate.PermittedDNSDomains
	return slices.DeleteFunc(slices.Clone(dnsNames), func(name string) bool {
		return len(domains) == 0 || slices.ContainsFunc(domains, func(domain string) bool {
			return name == domain || strings.HasSuffix(name, "."+strings.TrimPrefix(domain, "."))
		})
	})
}

// Issue returns a certificate for a server of these DNS names, with a new key. It ends before the authority
// does.
func (p *Pair) Issue(dnsNames []string, now time.Time, lifetime time.Duration) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of a certificate: %w", err)
	}
	notAfter := now.Add(lifetime)
	if notAfter.After(p.Certificate.NotAfter) {
		notAfter = p.Certificate.NotAfter
	}
	return sign(&x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"lock-operator"}}, // A common name has 64 characters.
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              dnsNames,
	}, p.Certificate, key, p.Key)
}

func sign(template, issuer *x509.Certificate, key, issuerKey crypto.Signer) (*Pair, error) {
	certificate, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return ParsePair(
		pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: encodedKey}))
}
