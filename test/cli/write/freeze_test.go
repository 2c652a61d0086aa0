package write_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

var _ = Describe("Freezing a namespace", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = cluster.Namespace(ctx, "freeze-")
		must(cluster.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled))
	})
	change := func(ctx context.Context, user fixture.Identity) error {
		_, err := user.Kubectl.Run(ctx, "", "-n", namespace, "create", "service", "clusterip", "web", "--tcp=80", "--dry-run=server")
		return err
	}

	It("keeps other users from changing it, until it is thawed", func(ctx context.Context) {
		frozen := lockAs(ctx, ann, home(), "default", "", "freeze", namespace, "--until", "36h", "--reason", "Year-end freeze")
		Expect(frozen).To(succeed("namespace " + namespace + " is frozen until "))
		freeze := stored(ctx, namespace, "freeze")
		Expect(freeze.Spec.Holder).To(Equal(ann.Name))
		Expect(freeze.Spec.ExpireTime.Time).To(BeTemporally("~", time.Now().Add(36*time.Hour), time.Minute))
		Eventually(change).WithContext(ctx).WithArguments(bob).WithTimeout(timeout).Should(MatchError(ContainSubstring("Year-end freeze")))
		Expect(change(ctx, ann)).To(Succeed())

		Expect(lockAs(ctx, bob, home(), namespace, "", "thaw")).To(failWith(204, "ask that user"))
		Expect(lockAs(ctx, bob, home(), namespace, "", "freeze", "--until", "48h")).To(failWith(201, ann.Name+" has frozen namespace"))
		Expect(change(ctx, bob)).NotTo(Succeed())
		Expect(lockAs(ctx, ann, home(), "default", "", "thaw", namespace)).To(succeed("no longer frozen"))
		Eventually(change).WithContext(ctx).WithArguments(bob).WithTimeout(timeout).Should(Succeed())
		Expect(lockAs(ctx, ann, home(), "default", "", "thaw", namespace)).To(failWith(202, "is not frozen"))
	})

	It("changes the end of the caller's own freeze", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "1h", "--reason", "first")).To(succeed("is frozen"))
		token := must(stored(ctx, namespace, "freeze").FencingToken())
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "2d")).To(succeed("is frozen"))
		freeze := stored(ctx, namespace, "freeze")
		Expect(freeze.Spec.ExpireTime.Time).To(BeTemporally("~", time.Now().Add(48*time.Hour), time.Minute))
		Expect(freeze.Spec.Reason).To(Equal("first"))
		Expect(must(freeze.FencingToken())).To(Equal(token), "it is the same grant")
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "2d", "--resources", "services")).To(failWith(201, "guards other resources"))
	})

	It("freezes nothing in a dry run", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "1h", "--dry-run=server")).To(succeed("(server dry run)"))
		Expect(stored(ctx, namespace, "freeze")).To(BeNil())
	})

	It("says what to do where the namespace has not opted in", func(ctx context.Context) {
		must(cluster.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"-"))
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "1h")).To(failWith(204, "kubectl label namespace "+namespace))
		Expect(stored(ctx, namespace, "freeze")).To(BeNil())
	})

	It("says what to do about resources that cannot be frozen", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "1h", "--resources", "pods")).To(failWith(204, "--resources"))
		Expect(lockAs(ctx, guest, home(), namespace, "", "freeze", "--until", "1h")).To(HaveField("Status", 204))
	})

	It("leaves locks alone that are no freeze", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, home(), namespace, "", "acquire", "freeze")).To(succeed("acquired"))
		Expect(lockAs(ctx, ann, home(), namespace, "", "thaw")).To(failWith(202, "is not frozen"))
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "1h")).To(failWith(201, "guards nothing"))
		Expect(stored(ctx, namespace, "freeze")).NotTo(BeNil())
	})

	It("refuses a wrong end, and a façade", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze", "--until", "soon")).To(failWith(205, "neither"))
		Expect(lockAs(ctx, ann, home(), namespace, "", "freeze")).To(failWith(205, "--until"))
		Expect(finish(command(ctx, home(), "freeze", "--until", "1h", "--server", open), "")).To(failWith(205, "API server"))
	})
})
