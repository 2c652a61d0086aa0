package robustness_test

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/support/testenv"
)

// users is how many users with bearer tokens there are.
const users = 2

// makeTokens makes service accounts with all rights on locks, and returns a token of each.
func makeTokens(ctx context.Context, admin *rest.Config) (tokens []string, err error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	accounts := clientset.CoreV1().ServiceAccounts(clientNamespace)
	var subjects []rbacv1.Subject
	for number := range users {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("client-%d", number)}
		if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		issued, err := accounts.CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, issued.Status.Token)
		subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: clientNamespace, Name: meta.Name})
	}
	_, err = clientset.RbacV1().RoleBindings(clientNamespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "clients"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: testenv.TestersGroup},
	}, metav1.CreateOptions{})
	return tokens, err
}

// authenticated returns a client of the façades that authenticate their callers, and one of
// another user.
func (c *cluster) authenticated(number int, running *running) (client, thief *caller) {
	var addresses []string
	for _, replica := range c.replicas {
		addresses = append(addresses, replica.tokenAddress)
	}
	made := make([]*caller, 0, 2)
	for offset := range 2 {
		next := newCaller(number, addresses, c.history, running)
		next.token = c.tokens[(number/2+offset)%len(c.tokens)]
		made = append(made, next)
	}
	return made[0], made[1]
}
