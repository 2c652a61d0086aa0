package write_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var _ = Describe("Freeing a lock", func() {
	var namespace, folder string
	BeforeEach(func(ctx context.Context) {
		namespace, folder = cluster.Namespace(ctx, "free-"), home()
		Expect(lockAs(ctx, ann, folder, namespace, "", "acquire", "k", "--reason", "monthly close")).To(succeed("acquired"))
	})

	expectUntouched := func(ctx context.Context) {
		GinkgoHelper()
		Expect(stored(ctx, namespace, "k").Annotations).NotTo(HaveKey(v1alpha1.ForceReleaseReasonAnnotation))
	}

	It("takes it from its holder with a reason, after showing who loses it", func(ctx context.Context) {
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "k")).To(failWith(205, "say why"))
		expectUntouched(ctx)
		freed := lockAs(ctx, chief, home(), namespace, "y\n", "free", "k", "--reason", "worker-7 lost its disk")
		Expect(freed).To(succeed("k taken from " + ann.Name + " by force"))
		Expect(freed.ErrOut).To(And(ContainSubstring(ann.Name), ContainSubstring("monthly close"), ContainSubstring("[y/N]")))
		Expect(stored(ctx, namespace, "k")).To(BeNil())
		Eventually(forcedReasons).WithArguments(namespace).WithContext(ctx).WithTimeout(timeout).Should(Equal(map[string][]string{"k": {"worker-7 lost its disk"}}))
	})

	DescribeTable("does nothing when the answer is", func(ctx context.Context, answer string, status int) {
		Expect(lockAs(ctx, chief, home(), namespace, answer, "free", "k", "--reason", "why")).To(failWith(status, "nothing was done"))
		expectUntouched(ctx)
	},
		Entry("no", "n\n", 200),
		Entry("a line without a word", "\n", 200),
		Entry("missing", "", 200),
	)

	It("does nothing in a dry run, and says whether the caller may", func(ctx context.Context) {
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "k", "--reason", "why", "--dry-run=server")).To(succeed("(server dry run)"))
		expectUntouched(ctx)
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "k", "--dry-run")).To(succeed("(server dry run)"))
		expectUntouched(ctx)
		Expect(lockAs(ctx, bob, home(), namespace, "", "free", "k", "--reason", "why", "--dry-run=server")).To(HaveField("Status", 204))
		expectUntouched(ctx)
		Expect(lockAs(ctx, ann, folder, namespace, "", "free", "k", "--dry-run=server")).To(succeed("released (server dry run)"))
		expectUntouched(ctx)
	})

	It("is refused to a user without the right", func(ctx context.Context) {
		Expect(lockAs(ctx, bob, home(), namespace, "", "free", "k", "--reason", "why", "--yes")).To(failWith(204, "force-release"))
		expectUntouched(ctx)
	})

	It("releases the caller's own without force or reason", func(ctx context.Context) {
		freed := lockAs(ctx, ann, folder, namespace, "y\n", "free", "k")
		Expect(freed).To(succeed("k released"))
		Expect(freed.Out + freed.ErrOut).NotTo(ContainSubstring("force"))
		Expect(stored(ctx, namespace, "k")).To(BeNil())
		Expect(forcedReasons(ctx, namespace)).To(BeEmpty())
	})

	It("leaves a later grant alone", func(ctx context.Context) {
		talk := ask(command(ctx, home(), "free", "k", "--reason", "why", "--kubeconfig", chief.Kubectl.Kubeconfig(), "-n", namespace))
		Expect(lockAs(ctx, ann, folder, namespace, "", "release", "k")).To(succeed("released"))
		Expect(lockAs(ctx, bob, home(), namespace, "", "acquire", "k")).To(succeed("acquired"))
		Expect(talk.answer("y")).To(failWith(202, "granted anew, to \""+bob.Name))
		Expect(stored(ctx, namespace, "k").Spec.Holder).To(Equal(bob.Name))
		expectUntouched(ctx)
	})

	It("goes on when the lock was renewed meanwhile", func(ctx context.Context) {
		talk := ask(command(ctx, home(), "free", "k", "--reason", "why", "--kubeconfig", chief.Kubectl.Kubeconfig(), "-n", namespace))
		Expect(lockAs(ctx, ann, folder, namespace, "", "renew", "k")).To(succeed("renewed"))
		Expect(talk.answer("y")).To(succeed("by force"))
		Expect(stored(ctx, namespace, "k")).To(BeNil())
	})

	It("says that there is nothing to free", func(ctx context.Context) {
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "other", "--reason", "why", "--yes")).To(failWith(202, "other is not held"))
	})

	It("frees through a façade", func(ctx context.Context) {
		Expect(finish(command(ctx, folder, "acquire", "free:me", "--server", open), "")).To(succeed("acquired"))
		Expect(finish(command(ctx, home(), "free", "free:me", "--reason", "why", "--server", open), "y\n")).To(succeed("free:me taken from"))
		Expect(stored(ctx, "default", "free:me")).To(BeNil())
	})
})
