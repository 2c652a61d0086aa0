package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

var _ = Describe("Creating a Lock", func() {
	It("stamps holder and times", func(ctx context.Context) {
		before := time.Now().Add(-time.Microsecond)
		lock := created(ctx, alice, manifest("stamped"))
		Expect(lock.Spec.Holder).To(Equal("alice"))
		Expect(lock.Spec.Scope).To(Equal(v1alpha1.ScopeGlobal))
		Expect(lock.Spec.AcquireTime.Time).To(BeTemporally(">=", before))
		Expect(lock.Spec.AcquireTime.Time).To(BeTemporally("<=", time.Now()))
		Expect(lock.Spec.RenewTime.Time).To(BeTemporally("==", lock.Spec.AcquireTime.Time))
		Expect(lock.Spec.ExpireTime.Time).To(BeTemporally("==", lock.Spec.AcquireTime.Add(time.Hour)))
		Expect(lock.Spec.FencingToken).To(BeNil())
	})

	It("keeps the text of a manifest unchanged", func(ctx context.Context) {
		_, err := aliceKubectl.Run(ctx, lockYAML("text", "ttl: 60m\n  function: \"\""), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "text")
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Lock"))
		Expect(alice.Get(ctx, client.ObjectKey{Namespace: "default", Name: "text"}, stored)).To(Succeed())
		Expect(stored.Object["spec"]).To(HaveKeyWithValue("ttl", "60m"))
		Expect(stored.Object["spec"]).To(HaveKeyWithValue("function", ""))
	})

	It("accepts an absolute expireTime in every notation", func(ctx context.Context) {
		day := time.Now().Add(48 * time.Hour).UTC().Format("2006-01-02")
		_, err := aliceKubectl.Run(ctx, lockYAML("freeze", "expireTime: "+day+"T00:00:00Z"), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "freeze")
		output, err := aliceKubectl.Run(ctx, "", "get", "lock", "freeze", "-o", "jsonpath={.spec.expireTime} {.spec.ttl}")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(Equal(day + "T00:00:00Z "))
	})

	DescribeTable("refuses a ttl out of bounds with its path and the bound",
		func(ctx context.Context, ttl string) {
			_, err := aliceKubectl.Run(ctx, lockYAML("bounds", "ttl: "+ttl), "create", "-f", "-")
			Expect(err).To(MatchError(And(ContainSubstring("spec.ttl"), ContainSubstring("24h"))))
		},
		Entry("zero", "0s"), Entry("negative", "-5s"), Entry("over the maximum", "24h1s"), Entry("nonsense", "soon"),
		Entry("a number", "30"), Entry("without unit", `"30"`), Entry("overflowing", "99999999999999999999h"),
	)

	// The schema leaves these to the webhook, or says less about them.
	DescribeTable("says what is wrong",
		func(ctx context.Context, change func(*v1alpha1.LockSpec), message string) {
			err := alice.Create(ctx, manifest("wrong", func(l *v1alpha1.Lock) { l.Name = ""; l.GenerateName = "any-"; change(&l.Spec) }))
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("with a key of 171 characters of three bytes", func(s *v1alpha1.LockSpec) { s.Key = strings.Repeat("日", 171) }, "at most 512 bytes"),
		Entry("with a control character in a key", func(s *v1alpha1.LockSpec) { s.Key = "a\nb" }, "must not contain control characters"),
		Entry("with white space at the end of a key", func(s *v1alpha1.LockSpec) { s.Key = "deploy\u00a0" },
			"must not begin or end with white space: character 7 is U+00A0"),
		Entry("with an invisible character in a function", func(s *v1alpha1.LockSpec) { s.Scope, s.Function = v1alpha1.ScopeFunction, "f\u200b" },
			"must not contain invisible characters: character 2 is U+200B"),
		Entry("with an owner of 171 characters of three bytes", func(s *v1alpha1.LockSpec) { s.Owner = strings.Repeat("日", 171) }, "at most 512 bytes"),
		Entry("with a function of 171 characters of three bytes", func(s *v1alpha1.LockSpec) {
			s.Scope, s.Function = v1alpha1.ScopeFunction, strings.Repeat("日", 171)
		}, "at most 512 bytes"),
		Entry("with a releaseDelay and no holderRef", func(s *v1alpha1.LockSpec) { s.ReleaseDelay = &v1alpha1.Duration{Duration: time.Second} },
			"needs a holderRef"),
	)

	It("refuses an invalid expireTime", func(ctx context.Context) {
		_, err := aliceKubectl.Run(ctx, lockYAML("bounds", "expireTime: tomorrow"), "create", "-f", "-")
		Expect(err).To(MatchError(And(ContainSubstring("spec.expireTime"), ContainSubstring("RFC 3339"))))
	})

	It("refuses wrong types without an internal error", func(ctx context.Context) {
		_, err := aliceKubectl.Run(ctx, lockYAML("types", "reason: [a]"), "create", "-f", "-")
		Expect(err).To(MatchError(And(ContainSubstring("invalid"), ContainSubstring("spec.reason: Invalid value: must be a string, not a array"))))
	})
})

var _ = Describe("Applying manifests", func() {
	It("changes nothing the second time", func(ctx context.Context) {
		samples := "../config/samples"
		output, err := aliceKubectl.Run(ctx, "", "apply", "-f", samples)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(output, "created")).To(Equal(2), output)
		DeferCleanup(func(ctx context.Context) {
			_, err := aliceKubectl.Run(ctx, "", "delete", "-f", samples)
			Expect(err).NotTo(HaveOccurred())
		})
		versions := func() string {
			output, err := aliceKubectl.Run(ctx, "", "get", "locks", "-o", "jsonpath={range .items[*]}{.metadata.name}={.metadata.resourceVersion} {end}")
			Expect(err).NotTo(HaveOccurred())
			return output
		}
		before := versions()
		output, err = aliceKubectl.Run(ctx, "", "apply", "-f", samples)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(output, "unchanged")).To(Equal(2), output)
		_, err = aliceKubectl.Run(ctx, "", "diff", "-f", samples)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(before)).To(HaveLen(2))
		Expect(versions()).To(Equal(before))
	})

	It("changes nothing the second time on the server's side", func(ctx context.Context) {
		apply := []string{"apply", "--server-side", "-f", "-"}
		freshly := lockYAML("server-side", "owner: gitops\n  ttl: 60m")
		_, err := aliceKubectl.Run(ctx, freshly, apply...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "server-side")
		version := func() string {
			output, err := aliceKubectl.Run(ctx, "", "get", "lock", "server-side", "-o", "jsonpath={.metadata.resourceVersion}")
			Expect(err).NotTo(HaveOccurred())
			return output
		}
		before := version()
		_, err = aliceKubectl.Run(ctx, freshly, apply...)
		Expect(err).NotTo(HaveOccurred())
		_, err = aliceKubectl.Run(ctx, freshly, "diff", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(version()).To(Equal(before))
	})

	// A manifest without an owner states nothing that differs from the held lock.
	DescribeTable("of a lock that another user holds is refused, though it changes nothing",
		func(ctx context.Context, key string, arguments ...string) {
			held := created(ctx, alice, manifest(key))
			until := held.Spec.ExpireTime.String()
			_, err := bobKubectl.Run(ctx, lockYAML(key, ""), arguments...)
			Expect(err).To(MatchError(ContainSubstring(`is held by "alice" until ` + until)))
		},
		Entry("on the client's side", "claimed:client", "apply", "-f", "-"),
		Entry("on the server's side", "claimed:server", "apply", "--server-side", "--force-conflicts", "-f", "-"),
	)

	It("acquires an expired lock again", func(ctx context.Context) {
		yaml := lockYAML("reapplied", "owner: gitops\n  ttl: 300ms")
		apply := []string{"apply", "--server-side", "-f", "-"}
		_, err := aliceKubectl.Run(ctx, yaml, apply...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(deleteLock, "reapplied")
		get := func() *v1alpha1.Lock {
			lock := &v1alpha1.Lock{}
			Expect(alice.Get(ctx, client.ObjectKey{Namespace: "default", Name: "reapplied"}, lock)).To(Succeed())
			return lock
		}
		first := get()
		Eventually(func() bool { return rules.Expired(first, time.Now()) }).Should(BeTrue())
		_, err = aliceKubectl.Run(ctx, yaml, apply...)
		Expect(err).NotTo(HaveOccurred())
		Expect(get().Spec.AcquireTime.Time).To(BeTemporally(">", first.Spec.AcquireTime.Time))
		Expect(get().FencingToken()).To(BeNumerically(">", must(first.FencingToken())))
	})
})

func lockYAML(key, rest string) string {
	return fmt.Sprintf("apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: %s\n  namespace: default\nspec:\n  key: %q\n  %s\n",
		v1alpha1.FullKeyOf(key).ObjectName(), key, rest)
}

func must(token int64, err error) int64 {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return token
}

func deleteLock(ctx context.Context, name string) {
	GinkgoHelper()
	lock := &v1alpha1.Lock{}
	lock.Namespace, lock.Name = "default", name
	Expect(client.IgnoreNotFound(operator.Delete(ctx, lock))).To(Succeed())
}
