package guards_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

// ask sets a request annotation, with more changes to the lock.
func ask(ctx context.Context, who fixture.Identity, lock *v1alpha1.Lock, request string, changes ...func(*v1alpha1.Lock)) error {
	GinkgoHelper()
	Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, v1alpha1.RequestAnnotation, request)
	for _, change := range changes {
		change(lock)
	}
	return who.Client.Update(ctx, lock)
}

func owner(token string) func(*v1alpha1.Lock) {
	return func(lock *v1alpha1.Lock) { lock.Spec.Owner = token }
}

// paintWeb writes an object that the lock of [held] guards.
var paintWeb = paint("web", "blue")

var _ = Describe("A guard", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx, v1alpha1.GuardsEnabled) })

	It("ends with the release", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		Expect(deployer.Client.Delete(ctx, lock)).To(Succeed())
		// Whatever the cache shows: a refusal is confirmed by a read.
		Expect(paintWeb(ctx, stranger, namespace)).To(Succeed())
	})

	It("ends with the expiry, though the lock is still there", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace, fixture.TTL(8*time.Second))
		Expect(paintWeb(ctx, stranger, namespace)).To(beGuarded())
		Eventually(paintWeb).WithContext(ctx).WithTimeout(timeout).WithArguments(stranger, namespace).Should(Succeed())
		Expect(time.Now()).To(BeTemporally(">=", lock.Spec.ExpireTime.Time))
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed(), "no reaper runs in this suite")
	})

	It("goes on with a renewal", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace, fixture.TTL(8*time.Second))
		first := lock.Spec.ExpireTime.Time
		Expect(ask(ctx, deployer, lock, v1alpha1.RequestRenewal, fixture.TTL(time.Hour))).To(Succeed())
		Eventually(time.Now).Should(BeTemporally(">", first))
		Expect(paintWeb(ctx, stranger, namespace)).To(beGuarded())
		Expect(paintWeb(ctx, deployer, namespace)).To(Succeed())
	})

	It("cannot be changed while the grant lasts", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		wider := guards(webDeployment, webMaps, v1alpha1.Guard{Resource: "secrets", Selector: &metav1.LabelSelector{}})
		for _, change := range []func(*v1alpha1.Lock){wider, guards(webMaps), guards()} {
			Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
			change(lock)
			Expect(deployer.Client.Update(ctx, lock)).To(MatchError(ContainSubstring("spec.guards: Forbidden: may not change while the lock is held")))
			Expect(ask(ctx, deployer, lock, v1alpha1.RequestRenewal, change)).To(MatchError(ContainSubstring("spec.guards: Forbidden")))
		}
	})

	It("may change with a hand-off, and then follows the new grant", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		Expect(ask(ctx, deployer, lock, v1alpha1.RequestHandOff, owner("token-b"), guards(webDeployment))).To(Succeed())
		Expect(paintWeb(ctx, stranger, namespace)).To(Succeed())
		Expect(scaled("web")(ctx, stranger, namespace)).To(beGuarded())
	})

	It("passes to the user who takes the lock over", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace, fixture.TTL(6*time.Second))
		Eventually(paintWeb).WithContext(ctx).WithTimeout(timeout).WithArguments(stranger, namespace).Should(Succeed())
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
		lock.Spec.Owner, lock.Spec.TTL = "token-b", &v1alpha1.Duration{Duration: time.Hour}
		Expect(stranger.Client.Update(ctx, lock)).To(Succeed())
		Eventually(func(ctx context.Context) error { return paintWeb(ctx, deployer, namespace) }).WithContext(ctx).WithTimeout(timeout).
			Should(MatchError(ContainSubstring(`which "stranger" has held`)))
		Expect(paintWeb(ctx, stranger, namespace)).To(Succeed())
	})

	It("is not passed to a user who has no right to the objects", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace, fixture.TTL(6*time.Second))
		Eventually(paintWeb).WithContext(ctx).WithTimeout(timeout).WithArguments(stranger, namespace).Should(Succeed())
		Expect(root.Client.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
		lock.Spec.Owner, lock.Spec.TTL = "token-b", &v1alpha1.Duration{Duration: time.Hour}
		Expect(bystander.Client.Update(ctx, lock.DeepCopy())).To(MatchError(ContainSubstring(`you may not create deployments.apps "web"`)))
		lock.Spec.Guards = nil
		Expect(bystander.Client.Update(ctx, lock)).To(Succeed(), "the lock itself is free")
	})

	It("is ended by a user who may force the release, and then the user may write", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		Expect(paintWeb(ctx, breaker, namespace)).To(MatchError(ContainSubstring("ask a user who has the verb force-release on locks.forrst.dev in namespace \"" + namespace)))
		Expect(kubectl("", "annotate", "lock", lock.Name, v1alpha1.ForceReleaseReasonAnnotation+"=incident 4711")(ctx, breaker, namespace)).To(Succeed())
		Expect(kubectl("", "delete", "lock", lock.Name)(ctx, breaker, namespace)).To(Succeed())
		Expect(paintWeb(ctx, breaker, namespace)).To(Succeed())
	})

	DescribeTable("needs the rights to create, update and delete what it guards",
		func(ctx context.Context, guard v1alpha1.Guard, missing string) {
			lock := fixture.Manifest(namespace, "reserved", guards(guard))
			Expect(bystander.Client.Create(ctx, lock.DeepCopy())).To(MatchError(And(
				ContainSubstring("spec.guards[0]: to guard "), ContainSubstring(`in namespace "`+namespace+`" you need the rights to create, update and delete`+missing))))
			Expect(deployer.Client.Create(ctx, lock)).To(Succeed())
		},
		Entry("one object", webDeployment, `; you may not create deployments.apps "web"`),
		Entry("by a selector, to all of them", webMaps, `; you may not create all configmaps`),
	)

	// bind gives the bystander verbs on the ConfigMap web.
	bind := func(ctx context.Context, name, verbs string) {
		GinkgoHelper()
		Expect(kubectl("", "create", "role", name, "--verb="+verbs, "--resource=configmaps", "--resource-name=web")(ctx, root, namespace)).To(Succeed())
		Expect(kubectl("", "create", "rolebinding", name, "--role="+name, "--user=bystander")(ctx, root, namespace)).To(Succeed())
	}

	It("takes the right to that object for one object, and to all for a selector", func(ctx context.Context) {
		one := fixture.Manifest(namespace, "one", guards(v1alpha1.Guard{Resource: "configmaps", Name: "web"}))
		// Who may only change an object does not keep others from creating and deleting it.
		bind(ctx, "change", "update")
		bind(ctx, "begin", "create")
		Eventually(func(ctx context.Context) error { return bystander.Client.Create(ctx, one.DeepCopy()) }).WithContext(ctx).WithTimeout(timeout).
			Should(MatchError(ContainSubstring(`you may not delete configmaps "web"`)))
		bind(ctx, "end", "delete")
		Eventually(func(ctx context.Context) error { return bystander.Client.Create(ctx, one.DeepCopy()) }).WithContext(ctx).WithTimeout(timeout).Should(Succeed())
		Expect(bystander.Client.Create(ctx, fixture.Manifest(namespace, "all", guards(webMaps)))).To(MatchError(ContainSubstring("all configmaps")))
	})

	It("cannot be put on Locks, Leases or Events", func(ctx context.Context) {
		for _, resource := range []v1alpha1.Guard{{Group: "forrst.dev", Resource: "locks", Name: "a"}, {Group: "coordination.k8s.io", Resource: "leases", Name: "a"},
			{Resource: "events", Selector: &metav1.LabelSelector{}}} {
			Expect(root.Client.Create(ctx, fixture.Manifest(namespace, "impossible", guards(resource)))).To(MatchError(ContainSubstring("cannot be guarded")))
		}
	})

	It("cannot be put on a resource about which the API server does not ask", func(ctx context.Context) {
		for _, resource := range []v1alpha1.Guard{{Resource: "serviceaccounts", Name: "a"}, {Group: "apps", Resource: "deployment", Name: "web"},
			{Group: "batch", Resource: "deployments", Name: "web"}} {
			Expect(root.Client.Create(ctx, fixture.Manifest(namespace, "impossible", guards(webMaps, resource)))).To(
				MatchError(ContainSubstring("spec.guards[1].resource: Forbidden: " + resource.Resource)))
		}
	})

	It("of two locks lets only the holder of both write", func(ctx context.Context) {
		held(ctx, deployer, namespace)
		second := fixture.Manifest(namespace, "second", guards(webMaps))
		Expect(stranger.Client.Create(ctx, second)).To(Succeed())
		Eventually(func(ctx context.Context) error { return paintWeb(ctx, deployer, namespace) }).WithContext(ctx).WithTimeout(timeout).
			Should(MatchError(ContainSubstring(`the lock "second"`)))
		Expect(paintWeb(ctx, stranger, namespace)).To(MatchError(ContainSubstring(`the lock "deploy--web"`)))
		Expect(stranger.Client.Delete(ctx, second)).To(Succeed())
		Expect(paintWeb(ctx, deployer, namespace)).To(Succeed())
	})

	It("lets the service account of the holder's Pod write", func(ctx context.Context) {
		for _, account := range []string{"worker", "other"} {
			Expect(root.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}})).To(Succeed())
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker-0"},
			Spec:       corev1.PodSpec{ServiceAccountName: "worker", Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
		}
		Expect(root.Client.Create(ctx, pod)).To(Succeed())
		held(ctx, deployer, namespace, func(l *v1alpha1.Lock) {
			l.Spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
		})
		account := func(namespace, name string) fixture.Identity {
			return environment.Identity("system:serviceaccount:"+namespace+":"+name, writers)
		}
		Expect(paintWeb(ctx, account(namespace, "worker"), namespace)).To(Succeed())
		Expect(paintWeb(ctx, account(namespace, "other"), namespace)).To(beGuarded())
		Expect(paintWeb(ctx, account("default", "worker"), namespace)).To(beGuarded())
		Expect(root.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(paintWeb(ctx, account(namespace, "worker"), namespace)).To(beGuarded())
	})
})

// The token is that of the grant, whether or not another write has recorded it in the lock.
var _ = Describe("The recipe of docs/guards.md", func() {
	It("reads the fencing token at once", func(ctx context.Context) {
		text, err := os.ReadFile("../../docs/guards.md")
		Expect(err).NotTo(HaveOccurred())
		recipe := regexp.MustCompile(`kubectl get lock deploy--frontend -o (\S+='[^']+') \| awk '\{print \$1\}'`).FindAllStringSubmatch(string(text), -1)
		Expect(recipe).To(HaveLen(1))
		Expect(strings.Count(string(text), "kubectl get lock ")).To(Equal(1))
		output := strings.ReplaceAll(recipe[0][1], "'", "")

		lock := held(ctx, deployer, newNamespace(ctx, v1alpha1.GuardsEnabled))
		read := func() string {
			GinkgoHelper()
			fields, err := deployer.Kubectl.Run(ctx, "", "-n", lock.Namespace, "get", "lock", lock.Name, "-o", output)
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Fields(fields)).NotTo(BeEmpty())
			return strings.Fields(fields)[0]
		}
		token := strconv.FormatInt(tokenOf(lock), 10)
		Expect(read()).To(Equal(token))
		Expect(kubectl("", "label", "lock", lock.Name, "team=web")(ctx, stranger, lock.Namespace)).To(Succeed())
		Expect(read()).To(Equal(token))
	})
})

var _ = Describe("A cache that is behind", Serial, func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx, v1alpha1.GuardsEnabled)
		DeferCleanup(func() { blind.Store(false) })
	})

	It("lets a write pass for as long as it lacks the grant", func(ctx context.Context) {
		held(ctx, deployer, namespace)
		blind.Store(true)
		Expect(paint("web", "blue")(ctx, stranger, namespace)).To(Succeed(), "docs/guards.md says so")
		blind.Store(false)
		Expect(paint("web", "green")(ctx, stranger, namespace)).To(beGuarded())
	})

	It("does not if the object is fenced by the lock: then the lock is read", func(ctx context.Context) {
		lock := held(ctx, deployer, namespace)
		Expect(kubectl("", "annotate", "configmap", "web", v1alpha1.FencedByAnnotation+"=deploy:web",
			fmt.Sprintf("%s=%d", v1alpha1.FencingTokenAnnotation, tokenOf(lock)))(ctx, deployer, namespace)).To(Succeed())
		blind.Store(true)
		Expect(paint("web", "blue")(ctx, stranger, namespace)).To(beGuarded())
	})
})
