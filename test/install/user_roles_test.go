package install_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// aggregationTimeout bounds how long the controller manager may take to start and to
// put the roles together.
const aggregationTimeout = 60 * time.Second

// verbs is every verb that means something for Locks.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "force-release", "deletecollection"}

const (
	reading = 3
	writing = 7
	forcing = 8
)

var _ = Describe("The roles of users", Ordered, func() {
	const namespace = "team-a"
	var people map[string]kubernetes.Interface

	BeforeAll(func(ctx context.Context) {
		people = map[string]kubernetes.Interface{}
		manager, err := environment.StartControllerManager("clusterrole-aggregation-controller")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
		_, err = admin.Run(ctx, "", "create", "namespace", namespace)
		Expect(err).NotTo(HaveOccurred())
		roles := []string{"view", "edit", "admin", "lock-operator-view", "lock-operator-edit", "lock-operator-admin"}
		for _, role := range roles {
			config, _, err := environment.User("user-of-" + role)
			Expect(err).NotTo(HaveOccurred())
			people[role], err = kubernetes.NewForConfig(config)
			Expect(err).NotTo(HaveOccurred())
			_, err = admin.Run(ctx, "", "create", "rolebinding", role, "--namespace="+namespace, "--clusterrole="+role, "--user=user-of-"+role)
			Expect(err).NotTo(HaveOccurred())
		}
		// What it takes in from edit comes last.
		Eventually(permitted).WithContext(ctx).WithArguments(people["admin"], namespace).WithTimeout(aggregationTimeout).Should(HaveLen(forcing))
	})

	DescribeTable("allow", func(ctx context.Context, role string, want []string) {
		Eventually(permitted).WithContext(ctx).WithArguments(people[role], namespace).WithTimeout(aggregationTimeout).Should(Equal(want))
		Expect(permitted(ctx, people[role], "default")).To(BeEmpty(), "rights in a namespace that the role is not bound in")
	},
		Entry("viewers to read", "view", verbs[:reading]),
		Entry("editors to take and release locks, not by force", "edit", verbs[:writing]),
		Entry("administrators to use force as well", "admin", verbs[:forcing]),
		Entry("the same where bound alone: viewers", "lock-operator-view", verbs[:reading]),
		Entry("the same where bound alone: editors", "lock-operator-edit", verbs[:writing]),
		Entry("the same where bound alone: administrators", "lock-operator-admin", verbs[:forcing]),
	)

	It("allow no caller to call routed functions, unless it is bound", func(ctx context.Context) {
		for role, person := range people {
			Expect(mayCall(ctx, person, namespace)).To(BeFalse(), role)
		}
		_, err := admin.Run(ctx, "", "create", "rolebinding", "call", "--namespace="+namespace, "--clusterrole=lock-operator-call", "--user=user-of-view")
		Expect(err).NotTo(HaveOccurred())
		Eventually(mayCall).WithContext(ctx).WithArguments(people["view"], namespace).WithTimeout(aggregationTimeout).Should(BeTrue())
		Expect(mayCall(ctx, people["view"], "default")).To(BeFalse())
		Expect(permitted(ctx, people["view"], namespace)).To(Equal(verbs[:reading]))
	})
})

// mayCall asks the API server whether the person may call a routed function on behalf of the namespace.
func mayCall(ctx context.Context, person kubernetes.Interface, namespace string) (bool, error) {
	review, err := person.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "call", Group: "forrst.dev", Resource: "functions", Name: "payments.charge",
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// permitted asks the API server, as kubectl auth can-i does, which verbs on locks the
// person has in the namespace.
func permitted(ctx context.Context, person kubernetes.Interface, namespace string) ([]string, error) {
	var permitted []string
	for _, verb := range verbs {
		review, err := person.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: "forrst.dev", Resource: "locks",
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if review.Status.Allowed {
			permitted = append(permitted, verb)
		}
	}
	return permitted, nil
}
