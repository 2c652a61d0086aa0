package admissionclient

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestTheCertificateIsOneOfAClientOfTheAuthority(t *testing.T) {
	files, err := Write(t.TempDir(), AnyWebhook)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(files.Authority)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if pair.Leaf.Subject.CommonName != Name || pair.Leaf.IsCA {
		t.Errorf("the name is %q; an authority: %t", pair.Leaf.Subject.CommonName, pair.Leaf.IsCA)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("the certificate would do for a server")
	}
}

func TestTheConfigurationNamesTheFiles(t *testing.T) {
	const webhook = "127.0.0.1:9443"
	folder := t.TempDir()
	files, err := Write(folder, webhook)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(folder, "webhooks.kubeconfig")
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if user := config.AuthInfos[webhook]; user == nil || user.ClientCertificate != files.Certificate || user.ClientKey != files.Key {
		t.Errorf("the user of the webhook is %+v", user)
	}
	admission, err := os.ReadFile(files.Admission)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(admission), kubeconfig) != 2 {
		t.Errorf("not both plugins use the kubeconfig:\n%s", admission)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of %s = %o", entry.Name(), got)
		}
	}
}
