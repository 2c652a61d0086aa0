// Package admissionclient makes a development API server present a client certificate to webhooks.
package admissionclient

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Name is the common name of the client certificate.
const Name = "kube-apiserver"

// AnyWebhook stands for all webhooks in [Write].
const AnyWebhook = "*"

// lifetime of the certificate is longer than that of any development cluster.
const lifetime = 365 * 24 * time.Hour

// Files are the paths of what [Write] has written.
type Files struct {
	// Authority is the certificate, in PEM, of the authority that has issued the client certificate.
	Authority string
	// Admission is for the API server's flag --admission-control-config-file.
	Admission string
	// Certificate and Key are those of the client, in PEM.
	Certificate, Key string
}

// admission configures the two plugins of the API server that call webhooks.
const admission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]q}
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]q}
`

// Write issues a certificate and writes the configuration with which an API server presents it to the
// webhook: host and port of its URL, or [AnyWebhook]. The folder must exist. The files are readable
// only for this user.
func Write(folder, webhook string) (Files, error) {
	file := func(name string) string { return filepath.Join(folder, name) }
	files := Files{
		Authority: file("webhook-client-ca.crt"), Admission: file("admission.yaml"),
		Certificate: file("webhook-client.crt"), Key: file("webhook-client.key"),
	}
	kubeconfig := file("webhooks.kubeconfig")
	authority, certificate, key, err := issue()
	if err != nil {
		return files, fmt.Errorf("issuing the certificate that the API server presents to webhooks: %w", err)
	}
	for path, content := range map[string][]byte{
		files.Authority: authority, files.Certificate: certificate, files.Key: key,
		files.Admission: fmt.Appendf(nil, admission, kubeconfig),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return files, err
		}
	}
	return files, clientcmd.WriteToFile(clientcmdapi.Config{AuthInfos: map[string]*clientcmdapi.AuthInfo{
		webhook: {ClientCertificate: files.Certificate, ClientKey: files.Key},
	}}, kubeconfig)
}

// issue returns, in PEM, an authority, and a client certificate of it with its key.
func issue() (authority, certificate, key []byte, err error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	issuer, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "webhook-clients"}, authorityKey)
	if err != nil {
		return nil, nil, nil, err
	}
	clientKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := sign(issuer, authorityKey, clientKey.Public())
	if err != nil {
		return nil, nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(clientKey); err != nil {
		return nil, nil, nil, err
	}
	if authority, err = cert.EncodeCertificates(issuer); err != nil {
		return nil, nil, nil, err
	}
	certificate, err = cert.EncodeCertificates(client)
	return authority, certificate, key, err
}

func sign(issuer *x509.Certificate, issuerKey crypto.Signer, public crypto.PublicKey) (*x509.Certificate, error) {
	encoded, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: Name},
		NotBefore:    issuer.NotBefore,
		NotAfter:     issuer.NotBefore.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, issuer, public, issuerKey)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(encoded)
}
