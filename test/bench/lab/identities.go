package lab

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"forrst.dev/lock-operator/test/bench/contender"
)

// operatorUser is the user of the operator on a development cluster.
const operatorUser = "system:serviceaccount:forrst-system:lock-operator"

// userName is the service account of the ordinary user.
const userName = "bench"

// tokenAudience is the audience that the compared façades ask for.
const tokenAudience = "lock-operator.forrst.dev"

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
	meta := metav1.ObjectMeta{Name: userName, Namespace: contender.Namespace}
	options := metav1.CreateOptions{}
	verbs := []string{"create", "get", "list", "watch", "update", "delete"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"forrst.dev"}, Resources: []string{"locks"}, Verbs: verbs},
		{APIGroups: []string{contender.BareGroup}, Resources: []string{contender.Bare.Resource, contender.Ruled.Resource, contender.Ruleless.Resource}, Verbs: verbs},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: userName},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Name: userName, Namespace: contender.Namespace},
			// The floors take the operator's identity, so nothing but the object differs from a lock.
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorUser},
		},
	}
	accounts := admin.CoreV1().ServiceAccounts(contender.Namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, options); err != nil {
		return nil, err
	}
	if _, err := admin.RbacV1().Roles(contender.Namespace).Create(ctx, role, options); err != nil {
		return nil, err
	}
	if _, err := admin.RbacV1().RoleBindings(contender.Namespace).Create(ctx, binding, options); err != nil {
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

// CallerToken returns a token of the ordinary user for façades.
func CallerToken(ctx context.Context, admin *rest.Config) (string, error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return "", err
	}
	token, err := clientset.CoreV1().ServiceAccounts(contender.Namespace).CreateToken(ctx, userName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}
