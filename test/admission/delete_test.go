package admission_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/test/support/fixture"
)

var reasonAnnotation = v1alpha1.ForceReleaseReasonAnnotation

// beRefused is what a stranger reads.
func beRefused(lock *v1alpha1.Lock) OmegaMatcher {
	return MatchError(And(
		ContainSubstring("locks.forrst.dev %q is forbidden", lock.Name),
		ContainSubstring("lock:%s is held by %q until %s; wait until it is free, or ask a user who has the verb force-release on locks.forrst.dev in namespace %q to force its release",
			lock.Spec.Key, workerName, lock.Spec.ExpireTime, lock.Namespace),
		Not(ContainSubstring(lock.Spec.Owner)),
	))
}

var _ = Describe("Deleting a live lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("is allowed to its holder", func(ctx context.Context) {
		lock := held(ctx, namespace, "billing:report")
		_, err := run(ctx, worker, namespace, "", "delete", "lock", lock.Name)
		Expect(err).NotTo(HaveOccurred())
		expectGone(ctx, lock)
	})

	DescribeTable("is refused to a stranger with advice, by",
		func(ctx context.Context, stdin func(namespace string) string, arguments ...string) {
			lock := held(ctx, namespace, "billing:report")
			_, err := run(ctx, stranger, namespace, stdin(namespace), arguments...)
			Expect(err).To(beRefused(lock))
			expectUntouched(ctx, lock)
		},
		Entry("delete", nothing, "delete", "lock", "billing--report"),
		Entry("delete --force", nothing, "delete", "lock", "billing--report", "--force", "--grace-period=0"),
		Entry("delete in the foreground", nothing, "delete", "lock", "billing--report", "--cascade=foreground"),
		Entry("delete that orphans", nothing, "delete", "lock", "billing--report", "--cascade=orphan"),
		Entry("delete --dry-run", nothing, "delete", "lock", "billing--report", "--dry-run=server"),
		Entry("delete --all", nothing, "delete", "locks", "--all"),
		Entry("replace --force", own, "replace", "--force", "-f", "-"),
		Entry("the reason for a forced release", nothing, "annotate", "lock", "billing--report", reasonAnnotation+"=mine now"),
		Entry("the reason, in a dry run", nothing, "annotate", "lock", "billing--report", reasonAnnotation+"=mine now", "--dry-run=server"),
		Entry("the reason by a JSON patch", nothing, "patch", "lock", "billing--report", "--type=json",
			"-p", `[{"op":"add","path":"/metadata/annotations","value":{"`+reasonAnnotation+`":"mine now"}}]`),
	)

	It("is refused to a stranger as a collection, and held locks stay", func(ctx context.Context) {
		first, second := held(ctx, namespace, "first"), held(ctx, namespace, "second")
		err := stranger.Client.DeleteAllOf(ctx, &v1alpha1.Lock{}, client.InNamespace(namespace))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
		expectUntouched(ctx, first)
		expectUntouched(ctx, second)
	})

	It("by delete --all names each held lock, and deletes the others", func(ctx context.Context) {
		first, second := held(ctx, namespace, "first"), held(ctx, namespace, "third")
		over := expired(ctx, namespace, "second")
		_, err := run(ctx, stranger, namespace, "", "delete", "locks", "--all")
		Expect(err).To(beRefused(first))
		Expect(err).To(beRefused(second))
		expectUntouched(ctx, first)
		expectUntouched(ctx, second)
		expectGone(ctx, over)
	})

	It("is allowed to every caller once the lock has expired", func(ctx context.Context) {
		lock := expired(ctx, namespace, "over")
		_, err := run(ctx, stranger, namespace, "", "delete", "lock", "over")
		Expect(err).NotTo(HaveOccurred())
		expectGone(ctx, lock)
	})

	It("does not end the lock of the next holder, which was acquired while the delete was admitted", func(ctx context.Context) {
		lock := expired(ctx, namespace, "contended")
		var asked atomic.Int32
		takeOver := func() {
			defer GinkgoRecover()
			if asked.Add(1) > 1 {
				return
			}
			taken := lock.DeepCopy()
			taken.Spec.Owner, taken.Spec.TTL.Duration = "token-b", time.Hour
			Expect(administrator.Client.Update(ctx, taken)).To(Succeed())
		}
		beforeDelete.Store(&takeOver)
		DeferCleanup(func() { beforeDelete.Store(nil) })

		err := worker.Client.Delete(ctx, lock)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
		Expect(err).To(MatchError(ContainSubstring(`is held by "administrator"`)))
		Expect(asked.Load()).To(BeNumerically(">", 1), "the API server asked once only")
		Expect(stored(ctx, lock).Spec.Holder).To(Equal("administrator"))
	})
})

var _ = Describe("Forcing a release", func() {
	var namespace string
	var lock *v1alpha1.Lock
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		lock = held(ctx, namespace, "billing:report")
	})
	giveReason := func(ctx context.Context, reason string) {
		GinkgoHelper()
		_, err := run(ctx, administrator, namespace, "", "annotate", "--overwrite", "lock", lock.Name, reasonAnnotation+"="+reason)
		Expect(err).NotTo(HaveOccurred())
	}

	DescribeTable("needs a reason", func(ctx context.Context, arguments ...string) {
		_, err := run(ctx, administrator, namespace, "", append([]string{"delete", "lock", lock.Name}, arguments...)...)
		Expect(err).To(MatchError(And(ContainSubstring("is invalid"), ContainSubstring("kubectl annotate lock billing--report -n %s %s=", namespace, reasonAnnotation))))
		expectUntouched(ctx, lock)
		_, err = run(ctx, administrator, namespace, "", "annotate", "lock", lock.Name, reasonAnnotation+"= ")
		Expect(err).NotTo(HaveOccurred())
		_, err = run(ctx, administrator, namespace, "", append([]string{"delete", "lock", lock.Name}, arguments...)...)
		Expect(err).To(MatchError(ContainSubstring("is invalid")))
		Expect(stored(ctx, lock)).NotTo(BeNil())
	},
		Entry("for a delete"),
		Entry("for a delete in a dry run", "--dry-run=server"),
		Entry("for kubectl delete --force", "--force"),
	)

	It("leaves one Warning with the caller and the reason, without the owner token", func(ctx context.Context) {
		token, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		giveReason(ctx, "the node burnt down")
		Expect(stored(ctx, lock).FencingToken()).To(Equal(token))
		_, err = run(ctx, administrator, namespace, "", "delete", "lock", lock.Name, "--dry-run=server")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored(ctx, lock)).NotTo(BeNil())
		_, err = run(ctx, administrator, namespace, "", "delete", "lock", lock.Name)
		Expect(err).NotTo(HaveOccurred())
		expectGone(ctx, lock)

		found := eventsOf(ctx, namespace)
		Eventually(found).Should(HaveLen(1))
		event := found()[0]
		Expect(event.Type).To(Equal(corev1.EventTypeWarning))
		Expect(event.Reason).To(Equal(auditlog.ReasonForceReleased))
		Expect(event.Regarding.Kind).To(Equal("Lock"))
		Expect(event.Regarding.Name).To(Equal(lock.Name))
		Expect(event.Regarding.UID).To(Equal(lock.UID))
		Expect(event.Note).To(Equal(fmt.Sprintf(`lock:billing:report, held by %q, is being released by force by "administrator": the node burnt down`, workerName)))
		Expect(event.Series).To(BeNil())
		output, err := run(ctx, root, namespace, "", "events", "--for=lock/"+lock.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(ContainSubstring("ForceReleased"))
	})

	It("leaves the Warning where finalizers delay the deletion", func(ctx context.Context) {
		giveReason(ctx, "in the foreground")
		_, err := run(ctx, administrator, namespace, "", "delete", "lock", lock.Name, "--cascade=foreground")
		Expect(err).NotTo(HaveOccurred())
		Eventually(eventsOf(ctx, namespace)).Should(HaveLen(1))
		Eventually(stored).WithContext(ctx).WithArguments(lock).WithTimeout(systemTimeout).Should(BeNil())
		Expect(eventsOf(ctx, namespace)()).To(HaveLen(1))
	})

	It("leaves no Warning of a deletion by the holder", func(ctx context.Context) {
		giveReason(ctx, "never mind")
		_, err := run(ctx, worker, namespace, "", "delete", "lock", lock.Name)
		Expect(err).NotTo(HaveOccurred())
		over := expired(ctx, namespace, "over")
		Expect(stranger.Client.Delete(ctx, over)).To(Succeed())
		forced := held(ctx, namespace, "forced")
		_, err = run(ctx, administrator, namespace, "", "annotate", "lock", "forced", reasonAnnotation+"=last")
		Expect(err).NotTo(HaveOccurred())
		Expect(administrator.Client.Delete(ctx, forced)).To(Succeed())
		Eventually(eventsOf(ctx, namespace)).Should(HaveLen(1))
		Expect(eventsOf(ctx, namespace)()[0].Regarding.Name).To(Equal("forced"))
	})

	It("needs the verb force-release at the delete as well", func(ctx context.Context) {
		giveReason(ctx, "the node burnt down")
		_, err := run(ctx, stranger, namespace, "", "delete", "lock", lock.Name)
		Expect(err).To(beRefused(lock))
		_, err = run(ctx, stranger, namespace, "", "annotate", "lock", lock.Name, reasonAnnotation+"-")
		Expect(err).To(beRefused(lock))
		Expect(stored(ctx, lock).Annotations).To(HaveKeyWithValue(reasonAnnotation, "the node burnt down"))
	})

	It("cannot be prevented by the holder", func(ctx context.Context) {
		giveReason(ctx, "the node burnt down")
		_, err := run(ctx, worker, namespace, "", "annotate", "lock", lock.Name, reasonAnnotation+"-")
		Expect(err).NotTo(HaveOccurred())
		_, err = run(ctx, worker, namespace, "", "annotate", "--overwrite", "lock", lock.Name, reasonAnnotation+"=", v1alpha1.RequestAnnotation+"=renew")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored(ctx, lock).Annotations).To(HaveKeyWithValue(reasonAnnotation, "the node burnt down"))
		_, err = run(ctx, administrator, namespace, "", "delete", "lock", lock.Name)
		Expect(err).NotTo(HaveOccurred())
	})

	It("does not use a reason that the holder gave", func(ctx context.Context) {
		_, err := run(ctx, worker, namespace, "", "annotate", "lock", lock.Name, reasonAnnotation+"=whatever")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored(ctx, lock).Annotations).NotTo(HaveKey(reasonAnnotation))
		Expect(apierrors.IsInvalid(administrator.Client.Delete(ctx, lock))).To(BeTrue())
	})

	It("does not use a reason that was given for an earlier grant", func(ctx context.Context) {
		over := expired(ctx, namespace, "over")
		_, err := run(ctx, stranger, namespace, "", "annotate", "lock", "over", reasonAnnotation+"=it has expired")
		Expect(err).NotTo(HaveOccurred(), "it has no effect there")
		_, err = run(ctx, stranger, namespace, yaml(namespace, "over", "owner: token-b", "ttl: 1h"), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored(ctx, over).Spec.Holder).To(Equal("stranger"))
		Expect(stored(ctx, over).Annotations).NotTo(HaveKey(reasonAnnotation))

		again := fixture.Manifest(namespace, "new", func(l *v1alpha1.Lock) { l.Annotations = map[string]string{reasonAnnotation: "before"} })
		Expect(worker.Client.Create(ctx, again)).To(Succeed())
		Expect(again.Annotations).NotTo(HaveKey(reasonAnnotation))
	})

	It("is open to a cluster administrator", func(ctx context.Context) {
		giveReason(ctx, "the node burnt down")
		Expect(root.Client.Delete(ctx, lock)).To(Succeed())
	})
})

// eventsOf returns what lists the Events on Locks of a namespace.
func eventsOf(ctx context.Context, namespace string) func() []eventsv1.Event {
	return func() []eventsv1.Event {
		var list eventsv1.EventList
		Expect(root.Client.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		return list.Items
	}
}

func nothing(string) string { return "" }

// own is the manifest of a stranger.
func own(namespace string) string {
	return yaml(namespace, "billing:report", "owner: stranger", "ttl: 2h", "reason: "+time.Hour.String())
}
