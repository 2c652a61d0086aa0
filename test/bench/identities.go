package main

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// userName is the service account of the ordinary user.
const userName = "bench"

// kubeconfig returns the client configuration of a file, without client-side rate limits.
func kubeconfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// ordinaryUser creates a service account that may use locks and leases, and returns its
// client configuration. The webhook admits its writes, like those of a program with the SDK.
func ordinaryUser(ctx context.Context, admin kubernetes.Interface, config *rest.Config) (*rest.Config, error) {
	meta := metav1.ObjectMeta{Name: userName, Namespace: namespace}
	options := metav1.CreateOptions{}
	verbs := []string{"create", "get", "list", "watch", "update", "delete"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"forrst.dev"}, Resources: []string{"locks"}, Verbs: verbs},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: userName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: userName, Namespace: namespace}},
	}
	accounts := admin.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, options); err != nil {
		return nil, err
	}
	if _, err := admin.RbacV1().Roles(namespace).Create(ctx, role, options); err != nil {
		return nil, err
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(ctx, binding, options); err != nil {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, userName, &authenticationv1.TokenRequest{}, options)
	if err != nil {
		return nil, err
	}
	user := rest.AnonymousClientConfig(config)
	user.QPS = -1
	user.BearerToken = token.Status.Token
	return user, nil
}

// callerToken returns a token of the ordinary user for façades.
func callerToken(ctx context.Context, admin *rest.Config) (string, error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return "", err
	}
	token, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, userName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}
