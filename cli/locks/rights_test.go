package locks_test

import (
	"context"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
)

func TestVerbsAreAskedForOnTheLock(t *testing.T) {
	cluster := fake.NewClientBuilder().WithScheme(session.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review := object.(*authorizationv1.SelfSubjectAccessReview)
			asked := *review.Spec.ResourceAttributes
			review.Status.Allowed = asked == authorizationv1.ResourceAttributes{
				Namespace: "payments", Name: "deploy", Verb: "update", Group: "forrst.dev", Resource: "locks",
			}
			return nil
		},
	}).Build()
	missing, err := locks.MissingVerbs(t.Context(), cluster, "payments", "deploy", "update", "delete")
	if err != nil || !slices.Equal(missing, []string{"delete"}) {
		t.Errorf("missing are %q, %v", missing, err)
	}
}
