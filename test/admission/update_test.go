package admission_test

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// isHeld names the holder; the end of the grant follows.
const isHeld = `lock:billing:report is held by "` + workerName + `" until `

// A stranger has every verb that RBAC can allow.
var _ = Describe("A live lock", func() {
	var namespace string
	var lock *v1alpha1.Lock
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		lock = held(ctx, namespace, "billing:report")
	})

	patch := func(kind, patch string, more ...string) func(string) (string, []string) {
		return func(string) (string, []string) {
			return "", append([]string{"patch", "lock", "billing--report", "--type=" + kind, "-p", patch}, more...)
		}
	}
	file := func(arguments ...string) func(string) (string, []string) {
		return func(namespace string) (string, []string) { return own(namespace), append(arguments, "-f", "-") }
	}

	DescribeTable("cannot be changed by another caller with",
		func(ctx context.Context, command func(namespace string) (string, []string), message string) {
			stdin, arguments := command(namespace)
			_, err := run(ctx, stranger, namespace, stdin, arguments...)
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(err).NotTo(MatchError(ContainSubstring(lock.Spec.Owner)))
			expectUntouched(ctx, lock)
		},
		Entry("create", file("create"), "AlreadyExists"),
		Entry("create --save-config", file("create", "--save-config"), "AlreadyExists"),
		Entry("create --dry-run", file("create", "--dry-run=server"), "AlreadyExists"),
		Entry("apply", file("apply"), isHeld),
		Entry("apply --dry-run", file("apply", "--dry-run=server"), isHeld),
		Entry("apply --force, which would delete it", file("apply", "--force"), isHeld),
		Entry("server-side apply", file("apply", "--server-side"), "conflicts with \"admission.test\""),
		Entry("server-side apply --force-conflicts", file("apply", "--server-side", "--force-conflicts"), isHeld),
		Entry("server-side apply under the holder's manager", file("apply", "--server-side", "--force-conflicts", "--field-manager=admission.test"), isHeld),
		Entry("replace", file("replace"), isHeld),
		Entry("replace --dry-run", file("replace", "--dry-run=server"), isHeld),
		Entry("a merge patch of the owner", patch("merge", `{"spec":{"owner":"stranger"}}`), isHeld),
		Entry("a merge patch of the ttl", patch("merge", `{"spec":{"ttl":"2h"}}`), isHeld),
		Entry("a merge patch with --dry-run", patch("merge", `{"spec":{"ttl":"2h"}}`, "--dry-run=server"), isHeld),
		Entry("a JSON patch of the owner", patch("json", `[{"op":"replace","path":"/spec/owner","value":"stranger"}]`), isHeld),
		Entry("a JSON patch that removes the ttl", patch("json", `[{"op":"remove","path":"/spec/ttl"},{"op":"replace","path":"/spec/expireTime","value":"2030-01-01T00:00:00Z"}]`), isHeld),
		Entry("a JSON patch of the reason", patch("json", `[{"op":"add","path":"/spec/reason","value":"mine"}]`), isHeld),
		Entry("a JSON patch of the holder", patch("json", `[{"op":"replace","path":"/spec/holder","value":"stranger"}]`), "spec.holder: Forbidden: is stamped"),
		Entry("a patch of the holder", patch("merge", `{"spec":{"holder":"stranger"}}`), "spec.holder: Forbidden: is stamped"),
		Entry("a patch of acquireTime", patch("merge", `{"spec":{"acquireTime":"2020-01-01T00:00:00Z"}}`), "spec.acquireTime: Forbidden: is stamped"),
		Entry("a patch of renewTime", patch("merge", `{"spec":{"renewTime":"2020-01-01T00:00:00Z"}}`), "spec.renewTime: Forbidden: is stamped"),
		Entry("a patch of the token", patch("merge", `{"spec":{"fencingToken":1}}`), "spec.fencingToken: Forbidden: is stamped"),
		Entry("a patch of expireTime", patch("merge", `{"spec":{"expireTime":"2020-01-01T00:00:00Z"}}`), isHeld),
		Entry("a strategic patch", patch("strategic", `{"spec":{"owner":"stranger"}}`), "application/strategic-merge-patch+json is not supported"),
		Entry("a patch of the name", patch("merge", `{"metadata":{"name":"Billing--Report"}}`), "the name of the object"),
		Entry("a patch of the UID", patch("merge", `{"metadata":{"uid":"other"}}`), "metadata.uid"),
		Entry("a patch of an older version", patch("merge", `{"metadata":{"resourceVersion":"1"},"spec":{"ttl":"2h"}}`), "Conflict"),
		Entry("a finalizer", patch("merge", `{"metadata":{"finalizers":["example.com/keep"]}}`), "metadata.finalizers"),
		Entry("an owner reference to an object that does not exist", patch("merge", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"gone"}]}}`), "metadata.ownerReferences"),
		Entry("a holderRef to an object that does not exist", patch("merge", `{"spec":{"holderRef":{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"gone"}}}`), isHeld),
		Entry("a holderEndTime", patch("merge", `{"spec":{"holderEndTime":"2020-01-01T00:00:00Z"}}`), "spec.holderEndTime"),
		Entry("a requested acquisition", patch("merge", `{"metadata":{"annotations":{"`+v1alpha1.AcquisitionAnnotation+`":"mine"}}}`), isHeld),
		Entry("a requested renewal", patch("merge", `{"metadata":{"annotations":{"`+v1alpha1.RequestAnnotation+`":"hand-off"}},"spec":{"owner":"stranger"}}`), isHeld),
	)

	It("cannot be changed by another caller in kubectl edit, which shows what is wrong", func(ctx context.Context) {
		editor := filepath.Join(GinkgoT().TempDir(), "editor")
		// kubectl opens the editor again with the error, where nothing new is done.
		Expect(os.WriteFile(editor, []byte("#!/bin/sh\nsed -i 's/ttl: 1h0m0s/ttl: 2h/' \"$1\"\n"), 0o700)).To(Succeed())
		GinkgoT().Setenv("KUBE_EDITOR", editor)
		output, err := run(ctx, stranger, namespace, "", "edit", "lock", "billing--report")
		Expect(err).To(HaveOccurred())
		Expect(output + err.Error()).To(ContainSubstring(isHeld))
		expectUntouched(ctx, lock)

		_, err = run(ctx, worker, namespace, "", "edit", "lock", "billing--report")
		Expect(err).NotTo(HaveOccurred())
		Expect(stored(ctx, lock).Spec.TTL.Duration).To(Equal(2 * time.Hour))
	})

	It("cannot be edited with the right to force a release", func(ctx context.Context) {
		_, err := run(ctx, administrator, namespace, own(namespace), "replace", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring(isHeld)))
		_, err = run(ctx, root, namespace, own(namespace), "apply", "--server-side", "--force-conflicts", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring(isHeld)))
		expectUntouched(ctx, lock)
	})

	It("has no subresource to change it by", func(ctx context.Context) {
		for _, arguments := range [][]string{
			{"patch", "lock", "billing--report", "--type=merge", "-p", `{"status":{"holder":"root"}}`, "--subresource=status"},
			{"scale", "lock", "billing--report", "--replicas=2"},
		} {
			_, err := run(ctx, root, namespace, "", arguments...)
			Expect(err).To(MatchError(Or(ContainSubstring("NotFound"), ContainSubstring("could not find the requested resource"))))
		}
		expectUntouched(ctx, lock)
	})

	It("cannot be changed by an update without a resourceVersion", func(ctx context.Context) {
		unread := fixture.Manifest(namespace, "billing:report", fixture.TTL(2*time.Hour))
		Expect(stranger.Client.Update(ctx, unread.DeepCopy())).To(MatchError(ContainSubstring(isHeld)))
		Expect(worker.Client.Update(ctx, unread)).To(MatchError(ContainSubstring("metadata.resourceVersion")))
		expectUntouched(ctx, lock)
	})

	DescribeTable("can be changed by every caller where the grant is not affected, and keeps its fencing token:",
		func(ctx context.Context, arguments ...string) {
			token, err := lock.FencingToken()
			Expect(err).NotTo(HaveOccurred())
			_, err = run(ctx, stranger, namespace, "", arguments...)
			Expect(err).NotTo(HaveOccurred())
			after := stored(ctx, lock)
			Expect(after.FencingToken()).To(Equal(token))
			after.Spec.FencingToken = nil
			Expect(after.Spec).To(Equal(lock.Spec))
		},
		Entry("label", "label", "lock", "billing--report", "team=a"),
		Entry("annotate", "annotate", "lock", "billing--report", "example.com/seen=yes"),
		Entry("empty managedFields", "patch", "lock", "billing--report", "--type=merge", "-p", `{"metadata":{"managedFields":[{}]}}`),
		Entry("the same ttl in other words", "patch", "lock", "billing--report", "--type=merge", "-p", `{"metadata":{"labels":{"a":"b"}},"spec":{"ttl":"1h0m0s"}}`),
	)

	It("can be given owner references by its holder", func(ctx context.Context) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
		Expect(root.Client.Create(ctx, owner)).To(Succeed())
		lock.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		Expect(worker.Client.Update(ctx, lock)).To(Succeed())
		fixture.TTL(2 * time.Hour)(lock)
		Expect(worker.Client.Update(ctx, lock)).To(Succeed())
	})

	It("refuses its holder a change of stamps, and a stale write as a conflict", func(ctx context.Context) {
		old := lock.DeepCopy()
		for stamp, value := range map[string]string{
			"holder": `"alice"`, "acquireTime": `"2020-01-01T00:00:00Z"`, "renewTime": `"2020-01-01T00:00:00Z"`,
			"expireTime": `"2050-01-01T00:00:00Z"`, "fencingToken": "1",
		} {
			_, err := run(ctx, worker, namespace, "", "patch", "lock", lock.Name, "--type=merge", "-p", `{"spec":{"`+stamp+`":`+value+`}}`)
			Expect(err).To(MatchError(ContainSubstring("spec."+stamp)), stamp)
		}
		expectUntouched(ctx, lock)
		fixture.TTL(2 * time.Hour)(lock)
		Expect(worker.Client.Update(ctx, lock)).To(Succeed())
		fixture.TTL(3 * time.Hour)(old)
		Expect(apierrors.IsConflict(worker.Client.Update(ctx, old))).To(BeTrue())
	})
})

// A test user has no UID, an account of a service has: it is impersonated together with it.
var _ = Describe("The lock of a service account that was deleted", func() {
	It("is not inherited by an account that was created again under its name", func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "admission-")
		as := func(uid string) client.Client {
			GinkgoHelper()
			config := rest.CopyConfig(environment.Admin.Config)
			config.Impersonate = rest.ImpersonationConfig{UserName: workerName, UID: uid, Groups: []string{testenv.TestersGroup}}
			made, err := client.New(config, client.Options{Scheme: environment.Scheme})
			Expect(err).NotTo(HaveOccurred())
			return made
		}
		former, later := as("1"), as("2")
		lock := fixture.Manifest(namespace, "report")
		Expect(former.Create(ctx, lock)).To(Succeed())
		Expect(lock.Spec.Holder).To(Equal(workerName))
		Expect(lock.Spec.HolderUID).To(Equal("1"))

		change := lock.DeepCopy()
		change.Spec.Reason = "mine now"
		Expect(apierrors.IsForbidden(later.Update(ctx, change))).To(BeTrue())
		Expect(apierrors.IsForbidden(later.Delete(ctx, lock.DeepCopy()))).To(BeTrue())
		Expect(former.Update(ctx, change)).To(Succeed())
		Expect(change.Spec.HolderUID).To(Equal("1"))
		Expect(former.Delete(ctx, change)).To(Succeed())
		next := fixture.Manifest(namespace, "report")
		Expect(later.Create(ctx, next)).To(Succeed())
		Expect(next.Spec.HolderUID).To(Equal("2"))
	})
})

var _ = Describe("Taking over an expired lock", func() {
	var namespace string
	var lock *v1alpha1.Lock
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		lock = expired(ctx, namespace, "billing:report")
	})
	expectTakenBy := func(ctx context.Context, who fixture.Identity) {
		GinkgoHelper()
		current := stored(ctx, lock)
		Expect(current).NotTo(BeNil())
		Expect(current.Spec.Holder).To(Equal(who.Name))
		before, err := lock.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		Expect(current.FencingToken()).To(BeNumerically(">", before))
	}

	DescribeTable("is open to every caller, by",
		func(ctx context.Context, arguments ...string) {
			_, err := run(ctx, stranger, namespace, own(namespace), append(arguments, "-f", "-")...)
			Expect(err).NotTo(HaveOccurred())
			expectTakenBy(ctx, stranger)
		},
		Entry("apply", "apply"),
		Entry("server-side apply", "apply", "--server-side", "--force-conflicts"),
		Entry("replace", "replace"),
		Entry("replace --force", "replace", "--force"),
	)

	It("goes to the first caller that writes the version it read", func(ctx context.Context) {
		take := func(who fixture.Identity) error {
			taken := lock.DeepCopy()
			taken.Spec.Owner, taken.Spec.TTL.Duration = who.Name, time.Hour
			return who.Client.Update(ctx, taken)
		}
		Expect(take(stranger)).To(Succeed())
		Expect(apierrors.IsConflict(take(administrator))).To(BeTrue())
		expectTakenBy(ctx, stranger)
	})

	It("needs a resourceVersion", func(ctx context.Context) {
		unread := fixture.Manifest(namespace, "billing:report", func(l *v1alpha1.Lock) { l.Spec.Owner = "stranger" })
		err := stranger.Client.Update(ctx, unread)
		Expect(err).To(MatchError(ContainSubstring("resourceVersion")))
		expectUntouched(ctx, lock)
	})

	It("does not happen in a dry run", func(ctx context.Context) {
		_, err := run(ctx, stranger, namespace, own(namespace), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(stranger.Client.Create(ctx, fixture.Manifest(namespace, "billing:report"), client.DryRunAll)).NotTo(Succeed())
		expectUntouched(ctx, lock)
	})

	It("needs a new owner token: the former grant cannot be renewed", func(ctx context.Context) {
		_, err := run(ctx, worker, namespace, "", "annotate", "lock", "billing--report", v1alpha1.RequestAnnotation+"=renew")
		Expect(err).To(MatchError(ContainSubstring("has expired")))
		Expect(stranger.Client.Patch(ctx, lock.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ttl":"1h"}}`)))).
			To(MatchError(ContainSubstring("is the token of the former holder")))
	})
})

var _ = Describe("Creating a lock", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	DescribeTable("stamps the caller as the holder, by",
		func(ctx context.Context, arguments ...string) {
			_, err := run(ctx, stranger, namespace, own(namespace), append(arguments, "-f", "-")...)
			Expect(err).NotTo(HaveOccurred())
			Expect(stored(ctx, fixture.Manifest(namespace, "billing:report")).Spec.Holder).To(Equal("stranger"))
		},
		Entry("create", "create"),
		Entry("create --save-config", "create", "--save-config"),
		Entry("apply", "apply"),
		Entry("server-side apply", "apply", "--server-side"),
	)

	DescribeTable("is refused",
		func(ctx context.Context, change func(*v1alpha1.Lock), message string) {
			for _, who := range []fixture.Identity{worker, stranger, administrator} {
				err := who.Client.Create(ctx, fixture.Manifest(namespace, "billing:report", change))
				Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
				Expect(err).To(MatchError(ContainSubstring(message)))
			}
		},
		Entry("for another holder", func(l *v1alpha1.Lock) { l.Spec.Holder = workerName }, "spec.holder"),
		Entry("with a fencing token", func(l *v1alpha1.Lock) { l.Spec.FencingToken = new(int64(1 << 40)) }, "spec.fencingToken"),
		Entry("with an acquireTime", func(l *v1alpha1.Lock) { l.Spec.AcquireTime = new(v1alpha1.NewTimestamp(time.Now())) }, "spec.acquireTime"),
		Entry("with a renewTime", func(l *v1alpha1.Lock) { l.Spec.RenewTime = new(v1alpha1.NewTimestamp(time.Now())) }, "spec.renewTime"),
		Entry("with a finalizer", func(l *v1alpha1.Lock) { l.Finalizers = []string{"example.com/keep"} }, "metadata.finalizers"),
		Entry("under the name of another key", func(l *v1alpha1.Lock) { l.Name = "billing--reports" }, "metadata.name"),
		Entry("under its name in upper case", func(l *v1alpha1.Lock) { l.Name = "Billing--Report" }, "metadata.name"),
	)

	It("uses the name of the key in place of a generated one", func(ctx context.Context) {
		held(ctx, namespace, "billing:report")
		err := stranger.Client.Create(ctx, fixture.Manifest(namespace, "billing:report", func(l *v1alpha1.Lock) { l.Name, l.GenerateName = "", "billing-" }))
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "got %v", err)
	})

	It("does nothing in a dry run", func(ctx context.Context) {
		_, err := run(ctx, stranger, namespace, own(namespace), "create", "--dry-run=server", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		expectGone(ctx, fixture.Manifest(namespace, "billing:report"))
	})
})
