package auth

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// Self returns the user name by which the API server of config knows this process. Every
// authenticated user may ask. httpClient must have been made from config.
func Self(ctx context.Context, config *rest.Config, httpClient *http.Client) (string, error) {
	client, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return "", fmt.Errorf("learn the own identity by SelfSubjectReview: %w", err)
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("learn the own identity by SelfSubjectReview: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}
