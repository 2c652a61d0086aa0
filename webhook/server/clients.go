package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// clients are those that may connect.
type clients struct {
	authority *dynamiccertificates.DynamicFileCAContent
	names     []string
}

// newClients reads the file of the authority. It is not read again until the authority is run.
func newClients(file string, names []string) (*clients, error) {
	authority, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("read the authority of the webhook's clients: %w", err)
	}
	return &clients{authority: authority, names: names}, nil
}

// require makes each handshake fail that lacks a certificate of such a client, and counts it.
func (c *clients) require(config *tls.Config, refused prometheus.Counter) {
	config.ClientAuth = tls.RequestClientCert // VerifyConnection refuses a client that has none.
	// A resumed session would have been verified by the authority of an earlier time.
	config.SessionTicketsDisabled = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := c.verify(state.PeerCertificates)
		if err != nil {
			refused.Inc()
		}
		return err
	}
}

// verify checks a certificate and those that follow it in the handshake.
func (c *clients) verify(chain []*x509.Certificate) error {
	options, ok := c.authority.VerifyOptions()
	if !ok || len(chain) == 0 {
		return errors.New("the client has no certificate, or its authority is not known")
	}
	options.Intermediates = x509.NewCertPool()
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return fmt.Errorf("the certificate of the client: %w", err)
	}
	if len(c.names) > 0 && !slices.ContainsFunc(namesOf(chain[0]), func(name string) bool { return slices.Contains(c.names, name) }) {
		return fmt.Errorf("the certificate of the client %q has none of the names that are allowed", chain[0].Subject.CommonName)
	}
	return nil
}

func namesOf(certificate *x509.Certificate) []string {
	names := append([]string{certificate.Subject.CommonName}, certificate.DNSNames...)
	for _, uri := range certificate.URIs {
		names = append(names, uri.String())
	}
	return names
}
