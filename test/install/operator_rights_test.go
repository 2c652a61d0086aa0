package install_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/test/support/testenv"
)

const ownNamespace = "forrst-system"

// explained is a row of the table of rights in docs/operations.md.
var explained = regexp.MustCompile("(?m)^\\| `([a-z0-9.]*/[a-z/]+)` \\| (everywhere|own namespace)(?:: ([a-z, -]+))? \\| (`[a-z]+`(?:, `[a-z]+`)*) \\| ([a-zç, ]+) \\| (.{20,}) \\|$")

var _ = Describe("The operator", func() {
	BeforeEach(func(ctx context.Context) {
		// The control plane has no certificates of its own.
		for _, manifest := range overlayOf(ctx, ownNamespace, "", "components: [CONFIG/guards]\n") {
			if regexp.MustCompile("(?m)^kind: (Cluster)?Role(Binding)?$").Match(manifest) && regexp.MustCompile("(?m)^ {2}name: lock-operator-(certificates|authority)$").Match(manifest) {
				_, err := admin.Run(ctx, string(manifest), "apply", "--server-side", "--force-conflicts", "-f", "-")
				Expect(err).NotTo(HaveOccurred())
			}
		}
	})

	DescribeTable("has exactly the rights that docs/operations.md explains", func(ctx context.Context, component, written string) {
		root, err := testenv.ModuleRoot()
		Expect(err).NotTo(HaveOccurred())
		page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
		Expect(err).NotTo(HaveOccurred())
		var everywhere, own []string
		for _, row := range explained.FindAllStringSubmatch(string(page), -1) {
			who := strings.Split(row[5], ", ")
			Expect([]string{"façade", "controllers", "webhook"}).To(ContainElements(who), row[0])
			if !slices.Contains(who, written) {
				continue
			}
			for verb := range strings.SplitSeq(row[4], ", ") {
				right := strings.TrimSuffix(row[1]+" "+strings.Trim(verb, "`")+" "+row[3], " ")
				own = append(own, right)
				if row[2] == "everywhere" {
					everywhere = append(everywhere, right)
				}
			}
		}
		Expect(everywhere).NotTo(BeEmpty(), "there is no table of rights")
		Expect(rights(ctx, ownUser(component), ownNamespace)).To(ConsistOf(own))
		Expect(rights(ctx, ownUser(component), "default")).To(ConsistOf(everywhere))
	},
		Entry("as the façade", facade, "façade"),
		Entry("as the controllers", controllers, "controllers"),
		Entry("as the webhook", webhook, "webhook"),
	)

	It("has no right on pods and Jobs as the façade, and none that writes them as the webhook", func(ctx context.Context) {
		Expect(rights(ctx, ownUser(facade), "default")).NotTo(ContainElement(Or(HavePrefix("core/pods"), HavePrefix("batch/"))))
		Expect(rights(ctx, ownUser(webhook), "default")).NotTo(ContainElement(MatchRegexp("^(core/pods|batch/)[a-z/]* (create|update|patch|delete)")))
	})
})

// rights returns what an account of the operator may do in a namespace besides what every service
// account may, as the API server sees it, whatever roles it comes from.
func rights(ctx context.Context, account, namespace string) []string {
	GinkgoHelper()
	ordinary := rightsOf(ctx, "system:serviceaccount:"+ownNamespace+":another", namespace)
	return slices.DeleteFunc(rightsOf(ctx, account, namespace), func(right string) bool {
		return slices.Contains(ordinary, right)
	})
}

func rightsOf(ctx context.Context, account, namespace string) []string {
	GinkgoHelper()
	config, _, err := environment.User(account, "system:serviceaccounts", "system:serviceaccounts:"+ownNamespace, "system:authenticated")
	Expect(err).NotTo(HaveOccurred())
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	review, err := clientset.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(review.Status.Incomplete).To(BeFalse(), review.Status.EvaluationError)
	var rights []string
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if group == "" {
						group = "core"
					}
					right := group + "/" + resource + " " + verb
					if len(rule.ResourceNames) > 0 {
						right += " " + strings.Join(slices.Sorted(slices.Values(rule.ResourceNames)), ", ")
					}
					rights = append(rights, right)
				}
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				rights = append(rights, url+" "+verb)
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}
