package locks

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// MissingVerbs returns which of the verbs the user may not use on the lock of that object name, or on all of the namespace if
// it is empty.
func MissingVerbs(ctx context.Context, cluster client.Client, namespace, name string, verbs ...string) (missing []string, err error) {
	for _, verb := range verbs {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Name: name, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks",
			},
		}}
		if err := cluster.Create(ctx, &review); err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}
