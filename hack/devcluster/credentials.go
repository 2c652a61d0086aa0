package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	loopback = "127.0.0.1"

	operatorNamespace      = "forrst-system"
	operatorServiceAccount = "lock-operator"
)

// Credentials are called after who presents them. Each lies in the state folder's
// pki folder as NAME.crt and NAME.key.
const (
	etcdServing       = "etcd"
	apiServerServing  = "kube-apiserver"
	apiServerToEtcd   = "kube-apiserver-to-etcd"
	controllerManager = "kube-controller-manager"
	operator          = "lock-operator"
	administrator     = "administrator"
	// serviceAccounts signs service-account tokens; its .crt is a public key.
	serviceAccounts = "service-accounts"
	// webhookFolder holds the webhook's pair under the names that controller-runtime
	// expects.
	webhookFolder  = "webhook"
	webhookServing = webhookFolder + "/tls"

	clusterAuthority = "cluster-ca"
	etcdAuthority    = "etcd-ca"
)

// credentials are all the secrets of one cluster.
type credentials struct {
	// cluster signs what the API server trusts and what it presents. etcd signs for
	// etcd alone, so that no client of the API server can go around it.
	cluster, etcd *authority
	pairs         map[string]keyPair
}

func issueCredentials() (*credentials, error) {
	cluster, err := newAuthority(clusterAuthority)
	if err != nil {
		return nil, err
	}
	etcd, err := newAuthority(etcdAuthority)
	if err != nil {
		return nil, err
	}

	c := &credentials{cluster: cluster, etcd: etcd, pairs: map[string]keyPair{}}
	for name, issue := range map[string]func() (keyPair, error){
		etcdServing:     func() (keyPair, error) { return etcd.issueServing(etcdServing, loopback) },
		apiServerToEtcd: func() (keyPair, error) { return etcd.issueClient(apiServerToEtcd) },
		apiServerServing: func() (keyPair, error) {
			return cluster.issueServing(apiServerServing, loopback, "localhost", "kubernetes.default.svc")
		},
		webhookServing:    func() (keyPair, error) { return cluster.issueServing(operator, loopback) },
		controllerManager: func() (keyPair, error) { return cluster.issueClient("system:kube-controller-manager") },
		// The name that a token of the operator's service account stands for, so that
		// the RBAC rules under test are the ones of a real installation.
		operator: func() (keyPair, error) {
			return cluster.issueClient("system:serviceaccount:"+operatorNamespace+":"+operatorServiceAccount,
				"system:serviceaccounts", "system:serviceaccounts:"+operatorNamespace)
		},
		administrator:   func() (keyPair, error) { return cluster.issueClient("lock-operator-dev", "system:masters") },
		serviceAccounts: newSigningKey,
	} {
		if c.pairs[name], err = issue(); err != nil {
			return nil, fmt.Errorf("issuing the credentials %q: %w", name, err)
		}
	}
	return c, nil
}

// write stores the credentials where the components read them.
func (c *credentials) write(dir stateDir) error {
	if err := os.Mkdir(filepath.Join(dir.pki(), webhookFolder), 0o700); err != nil {
		return err
	}
	for name, pair := range c.pairs {
		if err := pair.write(dir.certificate(name), dir.key(name)); err != nil {
			return err
		}
	}
	// Their keys stay in memory: nothing else is ever issued.
	for name, authority := range map[string]*authority{clusterAuthority: c.cluster, etcdAuthority: c.etcd} {
		if err := os.WriteFile(dir.certificate(name), authority.pem, 0o600); err != nil {
			return err
		}
	}
	return nil
}
