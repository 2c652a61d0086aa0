package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How the façade authenticates its callers.
const (
	authNone  = "none"
	authToken = "token"
)

// identities are two namespaces with a service account each that may use the locks there and call
// routed functions, and one service account that may force releases in the first.
const identities = `
apiVersion: v1
kind: Namespace
metadata: {name: payments}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker, namespace: payments}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: breaker, namespace: payments}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dev-locks}
rules:
- {apiGroups: [forrst.dev], resources: [locks], verbs: [create, get, list, watch]}
- {apiGroups: [forrst.dev], resources: [functions], verbs: [call]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dev-locks-breaker}
rules:
- {apiGroups: [forrst.dev], resources: [locks], verbs: [get, list, force-release]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: locks, namespace: payments}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dev-locks}
subjects: [{kind: ServiceAccount, name: worker, namespace: payments}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: locks-breaker, namespace: payments}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dev-locks-breaker}
subjects: [{kind: ServiceAccount, name: breaker, namespace: payments}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: locks, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dev-locks}
subjects: [{kind: ServiceAccount, name: worker, namespace: shop}]
`

// facadeAudience is the audience that the façade takes tokens for, unless flags give another.
const facadeAudience = "lock-operator.forrst.dev"

// tokenLifetime covers a long day of work.
const tokenLifetime = 24 * 60 * 60

// tokenPath returns the path of the first account's token. Empty without tokens.
func (c *cluster) tokenPath() string {
	if c.options.auth != authToken {
		return ""
	}
	return filepath.Join(string(c.dir), "worker.token")
}

// createIdentities creates the accounts and a token of the first one.
func (c *cluster) createIdentities(ctx context.Context, admin client.Client) error {
	objects, err := decodeManifests(strings.NewReader(identities))
	if err != nil {
		return err
	}
	if _, err := install(ctx, admin, objects); err != nil {
		return err
	}
	worker := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "worker"}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{facadeAudience}, ExpirationSeconds: new(int64(tokenLifetime)),
	}}
	if err := admin.SubResource("token").Create(ctx, worker, request); err != nil {
		return fmt.Errorf("issuing a token: %w", err)
	}
	return os.WriteFile(c.tokenPath(), []byte(request.Status.Token), 0o600)
}
