package holders_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/holders"
	facadeclient "forrst.dev/lock-operator/facade/client"
	locks "forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A reference to a holder", func() {
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	refused := func(err error, want string) {
		GinkgoHelper()
		Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(want)))
	}

	DescribeTable("is refused", func(ctx context.Context, change func(*v1alpha1.HolderReference), want string) {
		pod := running(ctx, namespace, "worker")
		wrong := podRef(pod)
		change(wrong)
		refused(alice.Create(ctx, manifest(namespace, "report", wrong)), want)
		lock := held(ctx, namespace, "report", podRef(pod))
		lock.Spec.HolderRef = wrong
		refused(alice.Update(ctx, lock), want)
		lock.Spec.HolderRef = podRef(pod)
		lock.Labels = map[string]string{"team": "billing"}
		Expect(alice.Update(ctx, lock)).To(Succeed())
	},
		Entry("to an object that does not exist", func(r *v1alpha1.HolderReference) { r.Name = "nobody" }, "spec.holderRef: Invalid value: there is no Pod nobody with the UID"),
		Entry("with another UID", func(r *v1alpha1.HolderReference) { r.UID = "other" }, "spec.holderRef: Invalid value: there is no Pod worker with the UID other"),
		Entry("to a kind that is not allowed", func(r *v1alpha1.HolderReference) { r.Kind = "Service" },
			"lock-operator allows Pod, Job.batch, ConfigMap, Secret, Node, and more by its flag --holder-kinds"),
		Entry("to another version", func(r *v1alpha1.HolderReference) { r.APIVersion = "v2" }, "must be v1 for a Pod"),
		Entry("to a kind that does not exist", func(r *v1alpha1.HolderReference) { r.Kind = "Pot" }, "spec.holderRef.kind"),
		Entry("to a kind without namespaces", func(r *v1alpha1.HolderReference) { r.Kind = "Node" }, "is a cluster-scoped kind"),
		Entry("to a kind that the operator may not get", func(r *v1alpha1.HolderReference) { r.Kind = "Secret" }, "lock-operator may not get secrets"),
		Entry("with a name that is a path", func(r *v1alpha1.HolderReference) { r.Name = "../secrets/worker" }, "spec.holderRef.name"),
		Entry("with a version that is a path", func(r *v1alpha1.HolderReference) { r.APIVersion = "../version" }, "spec.holderRef.apiVersion"),
		Entry("with a version that cannot be read", func(r *v1alpha1.HolderReference) { r.APIVersion = "a/b/c" }, "spec.holderRef.apiVersion"),
	)

	DescribeTable("is refused at every door once the object has ended", func(ctx context.Context, end func(context.Context) *v1alpha1.HolderReference, want string) {
		lock := held(ctx, namespace, "held", podRef(running(ctx, namespace, "worker")))
		ended := end(ctx)
		refused(alice.Create(ctx, manifest(namespace, "report", ended)), want)
		lock.Spec.HolderRef = ended
		refused(alice.Update(ctx, lock), want)

		backend, err := facadeclient.New(environment.StartFacade(ctx, namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(backend.Close)
		_, err = locks.NewClient(backend, namespace, locks.WithoutRenewal()).TryAcquire(ctx, "report", locks.WithHolderRef(ended))
		Expect(err).To(MatchError(locks.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(strings.TrimPrefix(want, "spec.holderRef: Invalid value: "))))
	},
		Entry("a Pod", func(ctx context.Context) *v1alpha1.HolderReference {
			pod := running(ctx, namespace, "ended")
			setPhase(ctx, pod, corev1.PodFailed, "Evicted")
			return podRef(pod)
		}, "spec.holderRef: Invalid value: has already ended: Pod ended has failed: Evicted"),
		Entry("a Job", func(ctx context.Context) *v1alpha1.HolderReference {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ended"},
				Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template()}},
			}
			Expect(admin.Create(ctx, job)).To(Succeed())
			now := metav1.Now()
			job.Status.StartTime, job.Status.CompletionTime = &now, &now
			for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
			}
			Expect(admin.Status().Update(ctx, job)).To(Succeed())
			return jobRef(job)
		}, "spec.holderRef: Invalid value: has already ended: Job ended is complete"),
	)

	It("is refused if the object lies in another namespace", func(ctx context.Context) {
		pod := running(ctx, newNamespace(ctx), "worker")
		refused(alice.Create(ctx, manifest(namespace, "report", podRef(pod))), "in the namespace of the lock, "+namespace)
		path := podRef(pod)
		path.Name = "../../" + pod.Namespace + "/pods/" + pod.Name
		refused(alice.Create(ctx, manifest(namespace, "report", path)), "spec.holderRef.name")
	})

	It("may come with a manifest", func(ctx context.Context) {
		startOperator(ctx, nil)
		pod := running(ctx, namespace, "worker")
		yaml := fmt.Sprintf(`apiVersion: forrst.dev/v1alpha1
kind: Lock
metadata: {name: report, namespace: %s}
spec: {key: report, owner: token-a, ttl: 1h, holderRef: {apiVersion: v1, kind: Pod, name: worker, uid: %s}}
`, namespace, pod.UID)
		_, err := aliceKubectl.Run(ctx, yaml, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		var lock v1alpha1.Lock
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "report"}, &lock)).To(Succeed())
		version := lock.ResourceVersion
		_, err = aliceKubectl.Run(ctx, yaml, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(&lock), &lock)).To(Succeed())
		Expect(lock.ResourceVersion).To(Equal(version), "applying it again writes nothing")
		remove(ctx, pod)
		expectReleased(ctx, &lock)
	})

	It("is refused by the façade, too, if it names a kind that is not allowed", func(ctx context.Context) {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "service"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(admin.Create(ctx, service)).To(Succeed())
		backend, err := facadeclient.New(environment.StartFacade(ctx, namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(backend.Close)
		_, err = locks.NewClient(backend, namespace, locks.WithoutRenewal()).TryAcquire(ctx, "report", locks.WithHolderRef(refTo("v1", "Service", service)))
		Expect(err).To(MatchError(locks.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring("lock-operator allows Pod, Job.batch, and more by its flag --holder-kinds")))
	})

	It("may name any kind that an administrator lists and lets the operator get", func(ctx context.Context) {
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		ref := refTo("v1", "ConfigMap", settings)
		refused(alice.Create(ctx, manifest(namespace, "report", ref)), "lock-operator may not get configmaps")
		grant(ctx, namespace, "get", "watch")
		startOperator(ctx, nil)
		var lock *v1alpha1.Lock
		Eventually(func() error { // The authorizer learns of the right by a watch.
			lock = manifest(namespace, "report", ref)
			return alice.Create(ctx, lock)
		}).Should(Succeed())
		expectHeld(ctx, lock)
		Expect(admin.Delete(ctx, settings)).To(Succeed())
		expectReleased(ctx, lock)
		Eventually(notes(ctx, lock)).Should(ConsistOf(ContainSubstring("ConfigMap settings")))
	})
})

var _ = Describe("A holder of a kind that is not allowed any more", func() {
	It("is not looked for: its lock ends with the ttl", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		grant(ctx, namespace, "get", "watch")
		var lock *v1alpha1.Lock
		Eventually(func() error { // The authorizer learns of the right by a watch.
			lock = manifest(namespace, "report", refTo("v1", "ConfigMap", settings))
			return alice.Create(ctx, lock)
		}).Should(Succeed())
		startOperatorWith(ctx, nil, func(r *holders.Reconciler) { r.Kinds = holderref.Kinds{} })
		Expect(admin.Delete(ctx, settings)).To(Succeed())
		expectHeld(ctx, lock)
	})
})

// grant lets the operator read ConfigMaps.
func grant(ctx context.Context, namespace string, verbs ...string) {
	GinkgoHelper()
	name := metav1.ObjectMeta{Namespace: namespace, Name: "holders"}
	Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs,
	}}})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: testenv.OperatorUser}},
	})).To(Succeed())
}
