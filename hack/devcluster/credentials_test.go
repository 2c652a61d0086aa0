package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestServingCertificateIsValidOnlyForItsHosts(t *testing.T) {
	credentials := testCredentials(t)
	pair, err := tls.X509KeyPair(credentials.certificate, credentials.key)
	if err != nil {
		t.Fatalf("the key does not belong to the certificate: %v", err)
	}
	// The trust of the API server's clients, and of the API server in the webhook.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.certificate)

	for host, wantValid := range map[string]bool{
		"127.0.0.1":   true,
		"localhost":   true,
		"127.0.0.2":   false,
		"example.com": false,
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		if valid := err == nil; valid != wantValid {
			t.Errorf("valid for %s = %v, want %v: %v", host, valid, wantValid, err)
		}
	}
}

func TestEachTokenStandsForOneUserAndItsGroups(t *testing.T) {
	credentials := testCredentials(t)
	text, err := credentials.tokens()
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	tokens := map[string]bool{}
	for _, record := range records {
		tokens[record[0]] = true
		groups[record[1]] = record[3]
	}
	want := map[string]string{
		"lock-operator-dev":              "system:masters",
		"system:kube-controller-manager": "",
		"system:kube-scheduler":          "",
		// The operator must not have all permissions: its RBAC rules are under test.
		"system:serviceaccount:forrst-system:lock-operator": "system:serviceaccounts,system:serviceaccounts:forrst-system",
	}
	if len(tokens) != len(want) || len(groups) != len(want) {
		t.Errorf("%d tokens for %d users, want one for each of %d", len(tokens), len(groups), len(want))
	}
	for name, wanted := range want {
		if got, ok := groups[name]; !ok || got != wanted {
			t.Errorf("groups of %s = %q (known: %v), want %q", name, got, ok, wanted)
		}
	}
	if another := testCredentials(t); slices.Contains([]string{
		credentials.administrator.token, credentials.controllerManager.token, credentials.operator.token,
	}, another.administrator.token) {
		t.Error("another cluster has the same token")
	}
}

func TestOnlyThisUserReachesEtcdAndTheCredentials(t *testing.T) {
	for _, address := range []string{etcdURL, etcdPeerURL} {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Scheme != "unix" || parsed.Path != "" {
			t.Errorf("etcd listens on %s, want a socket in its working folder", address)
		}
	}
	dir := stateDir(filepath.Join(t.TempDir(), "dev"))
	if err := os.Mkdir(string(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := dir.reset(); err != nil {
		t.Fatal(err)
	}
	if err := testCredentials(t).write(dir); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir.etcd(), dir.pki()} {
		requireMode(t, folder, 0o700)
	}
	entries, err := os.ReadDir(dir.pki())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		requireMode(t, filepath.Join(dir.pki(), entry.Name()), 0o600)
	}
}

func testCredentials(t *testing.T) *credentials {
	t.Helper()
	credentials, err := issueCredentials("system:serviceaccount:forrst-system:lock-operator")
	if err != nil {
		t.Fatal(err)
	}
	return credentials
}

func requireMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("mode of %s = %o, want %o", path, got, want)
	}
}
