package main

import (
	"crypto/rand"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const loopback = "127.0.0.1"

// A user is an identity that clients present to the API server.
type user struct {
	name   string
	groups []string
	token  string
}

// credentials are all secrets of one cluster. Etcd needs none: it listens on sockets in a
// folder that only this user may enter.
type credentials struct {
	administrator, controllerManager, scheduler, operator user
	// certificate and key are those of the API server and the webhook, in PEM. The
	// certificate of the authority follows that of the server.
	certificate, key []byte
	// signingKey signs the tokens of service accounts.
	signingKey []byte
}

// issueCredentials issues credentials for a cluster whose operator has the user name of a
// service account.
func issueCredentials(operatorUser string) (*credentials, error) {
	namespace, _, err := serviceaccount.SplitUsername(operatorUser)
	if err != nil {
		return nil, fmt.Errorf("issuing the operator's credentials: %q: %w", operatorUser, err)
	}
	c := &credentials{
		administrator:     user{name: "lock-operator-dev", groups: []string{"system:masters"}, token: rand.Text()},
		controllerManager: user{name: "system:kube-controller-manager", token: rand.Text()},
		scheduler:         user{name: "system:kube-scheduler", token: rand.Text()},
		// The user name of the operator's service account, so the RBAC rules are those of a
		// real installation.
		operator: user{
			name:   operatorUser,
			groups: serviceaccount.MakeGroupNames(namespace),
			token:  rand.Text(),
		},
	}
	if c.certificate, c.key, err = cert.GenerateSelfSignedCertKey(loopback, nil, []string{"localhost", "kubernetes.default.svc"}); err != nil {
		return nil, fmt.Errorf("issuing the serving certificate: %w", err)
	}
	if c.signingKey, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return nil, fmt.Errorf("generating the key for service-account tokens: %w", err)
	}
	return c, nil
}

// tokens returns the content of the API server's token file.
func (c *credentials) tokens() ([]byte, error) {
	var text strings.Builder
	records := csv.NewWriter(&text)
	for _, u := range []user{c.administrator, c.controllerManager, c.scheduler, c.operator} {
		if err := records.Write([]string{u.token, u.name, u.name, strings.Join(u.groups, ",")}); err != nil {
			return nil, err
		}
	}
	records.Flush()
	return []byte(text.String()), records.Error()
}

// Files of the pki folder. The first two have the names that controller-runtime expects.
const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	signingKeyFile  = "service-accounts.key"
	tokensFile      = "tokens.csv"
)

// write stores the credentials for the components, readable only for this user.
func (c *credentials) write(dir stateDir) error {
	tokens, err := c.tokens()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		certificateFile: c.certificate,
		keyFile:         c.key,
		signingKeyFile:  c.signingKey,
		tokensFile:      tokens,
	} {
		if err := os.WriteFile(filepath.Join(dir.pki(), name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
