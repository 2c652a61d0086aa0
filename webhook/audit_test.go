package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/test/support/testenv"
)

var records = &audittest.Recorder{}

// awaitDeletionAudit returns when the API server has taken up its configuration.
func awaitDeletionAudit(ctx context.Context) {
	GinkgoHelper()
	before := len(records.Of("probe"))
	Eventually(func(g Gomega) {
		probe := manifest("probe")
		g.Expect(client.IgnoreAlreadyExists(alice.Create(ctx, probe))).To(Succeed())
		g.Expect(alice.Delete(ctx, probe)).To(Succeed())
		g.Expect(records.Of("probe")[before:]).To(ContainElement(HaveField("Event", audit.Released)))
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
}

var _ = Describe("The audit of direct writes", func() {
	// tell returns the records about a lock: event, reason, actor and, for refusals, the
	// operation.
	tell := func(name string) func() []string {
		return func() []string {
			var told []string
			for _, record := range records.Of(name) {
				told = append(told, strings.Join(strings.Fields(fmt.Sprint(record.Event, " ", record.Reason, " ", record.Actor, " ", record.Operation)), " "))
			}
			return told
		}
	}
	update := func(ctx context.Context, as client.Client, lock *v1alpha1.Lock, change func()) error {
		GinkgoHelper()
		Expect(as.Get(ctx, client.ObjectKeyFromObject(lock), lock)).To(Succeed())
		change()
		return as.Update(ctx, lock)
	}

	AfterEach(func() {
		text, err := json.Marshal(records.All())
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(ContainSubstring("token-"), "an owner token is told")
	})

	It("has one record for each operation of a holder", func(ctx context.Context) {
		lockObject := created(ctx, alice, manifest("audited"))
		token, err := lockObject.FencingToken()
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			_, err := aliceKubectl.Run(ctx, "", "annotate", "lock", "audited", v1alpha1.RequestAnnotation+"=renew")
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = aliceKubectl.Run(ctx, "", "label", "lock", "audited", "team=a")
		Expect(err).NotTo(HaveOccurred())
		_, err = aliceKubectl.Run(ctx, "", "delete", "lock", "audited")
		Expect(err).NotTo(HaveOccurred())
		Expect(tell("audited")()).To(Equal([]string{"Granted alice", "Renewed alice", "Renewed alice", "Released ByOwner alice"}))
		for index, record := range records.Of("audited") {
			Expect(record).To(And(HaveField("Namespace", "default"), HaveField("Key", "audited"), HaveField("Holder", "alice"),
				HaveField("Via", audit.Admission), HaveField("Admitted", true), HaveField("AcquireTime.String()", lockObject.Spec.AcquireTime.String()),
				HaveField("OwnerHash", lock.Fingerprint("token-a"))))
			if index > 0 { // What is not created yet has neither.
				Expect(record).To(And(HaveField("FencingToken", token), HaveField("UID", string(lockObject.UID))))
			}
		}
		Expect(records.Of("audited")[3].HeldSeconds).To(HaveValue(And(BeNumerically(">", 0), BeNumerically("<", time.Hour.Seconds()))))
	})

	It("has an end and a beginning for a create in place of an expired lock", func(ctx context.Context) {
		expired(ctx, "audited-again")
		// While the cache does not know the expired lock, etcd refuses.
		Eventually(func() error { return bob.Create(ctx, manifest("audited-again")) }).Should(Succeed())
		told := tell("audited-again")()
		Expect(told[0]).To(Equal("Granted alice"))
		Expect(told[len(told)-2:]).To(Equal([]string{"Expired Reaped", "Granted bob"}))
	})

	It("has one record for each refusal", func(ctx context.Context) {
		live := created(ctx, alice, manifest("audited-refusals"))
		// While the cache does not know the lock, etcd refuses what admission lets pass.
		Eventually(func() []string {
			Expect(bob.Create(ctx, manifest("audited-refusals"))).NotTo(Succeed())
			return tell(live.Name)()
		}).Should(ContainElement("Refused Held bob create"))
		told := slices.DeleteFunc(tell(live.Name)(), func(text string) bool { return text == "Granted bob" })
		Expect(told).To(Equal([]string{"Granted alice", "Refused Held bob create"}))
		before := len(records.Of(live.Name))
		Expect(update(ctx, bob, live, func() { live.Spec.Reason = "mine" })).NotTo(Succeed())
		Expect(update(ctx, alice, live, func() { live.Spec.Holder = "bob" })).NotTo(Succeed())
		Expect(tell(live.Name)()[before:]).To(Equal([]string{"Refused Conflict bob update", "Refused Invalid alice update"}))
		Expect(records.Of(live.Name)[before-1]).To(HaveField("UID", ""))
		Expect(records.Of(live.Name)[before].Message).To(ContainSubstring(`is held by "alice"`))
		Expect(bob.Create(ctx, manifest("audited-wrong-name", func(l *v1alpha1.Lock) { l.Name = "audited-wrong" }))).NotTo(Succeed())
		Expect(tell("audited-wrong")()).To(Equal([]string{"Refused Invalid bob create"}))
	})

	It("tells the one grant of many concurrent creates by its end", func(ctx context.Context) {
		var racers sync.WaitGroup
		for range 6 {
			for _, user := range []client.Client{alice, bob} {
				racers.Go(func() { _ = user.Create(ctx, manifest("audited-race")) })
			}
		}
		racers.Wait()
		won := manifest("audited-race")
		Expect(operator.Get(ctx, client.ObjectKeyFromObject(won), won)).To(Succeed())
		winner := map[string]client.Client{"alice": alice, "bob": bob}[won.Spec.Holder]
		Expect(winner.Delete(ctx, won)).To(Succeed())
		var grants, ends []audit.Record
		for _, record := range records.Of("audited-race") {
			switch {
			case record.Event == audit.Granted:
				grants = append(grants, record)
			case record.HeldSeconds != nil:
				ends = append(ends, record)
			}
		}
		Expect(ends).To(HaveExactElements(And(HaveField("Event", audit.Released), HaveField("Actor", won.Spec.Holder))))
		isWon := func(record audit.Record) bool {
			return record.AcquireTime.Equal(&ends[0].AcquireTime) && record.OwnerHash == ends[0].OwnerHash && record.Holder == ends[0].Holder
		}
		Expect(grants).To(ContainElement(Satisfy(isWon)))
		Expect(grants).To(HaveEach(HaveField("Admitted", true)), "the others were not stored")
	})

	It("names the user and the reason of a forced release", func(ctx context.Context) {
		admin := administrator()
		live := created(ctx, alice, manifest("audited-force"))
		Expect(update(ctx, admin, live, func() {
			live.Annotations = map[string]string{"forrst.dev/force-release-reason": "alice left"}
		})).To(Succeed())
		Expect(admin.Delete(ctx, live, client.DryRunAll)).To(Succeed())
		Expect(admin.Delete(ctx, live)).To(Succeed())
		by := And(HaveField("Event", audit.ForceReleased), HaveField("Reason", audit.ByForce), HaveField("Key", "audited-force"),
			HaveField("Message", "alice left"), HaveField("Holder", "alice"), HaveField("Actor", Not(BeElementOf("", "alice"))), HaveField("Admitted", true))
		Expect(records.Of("audited-force")).To(HaveExactElements(
			HaveField("Event", audit.Granted),
			And(by, HaveField("DryRun", true), HaveField("HeldSeconds", BeNil())),
			And(by, HaveField("DryRun", false), HaveField("HeldSeconds", Not(BeNil()))),
		))
	})

	It("says when Kubernetes deleted a lock", func(ctx context.Context) {
		namespaces, _ := user("system:serviceaccount:kube-system:namespace-controller", testenv.TestersGroup)
		garbage, _ := user("system:serviceaccount:kube-system:generic-garbage-collector", testenv.TestersGroup)
		Expect(administrator().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}})).To(Succeed())
		inNamespace := func(l *v1alpha1.Lock) { l.Namespace = "going" }
		for _, key := range []string{"audited-going-1", "audited-going-2"} {
			created(ctx, alice, manifest(key, inNamespace))
		}
		Expect(namespaces.DeleteAllOf(ctx, &v1alpha1.Lock{}, client.InNamespace("going"))).To(Succeed())
		for _, key := range []string{"audited-going-1", "audited-going-2"} {
			Eventually(tell(key)).Should(Equal([]string{ // The API server does not wait for long.
				"Granted alice", "Released NamespaceDeleted system:serviceaccount:kube-system:namespace-controller",
			}))
		}
		orphan := created(ctx, alice, manifest("audited-orphan"))
		Expect(garbage.Delete(ctx, orphan)).To(Succeed())
		Eventually(tell("audited-orphan")).Should(Equal([]string{
			"Granted alice", "Released OwnersGone system:serviceaccount:kube-system:generic-garbage-collector",
		}))
	})

	It("records the end of an object in a foreground deletion when that begins", func(ctx context.Context) {
		live := created(ctx, alice, manifest("audited-foreground"))
		foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
		want := []string{"Granted alice", "Released ByOwner alice"}
		Expect(alice.Delete(ctx, live, foreground)).To(Succeed())
		Expect(tell(live.Name)()).To(Equal(want))
		Expect(alice.Delete(ctx, live, foreground)).To(Succeed(), "again")
		// This control plane has no garbage collector.
		Expect(update(ctx, alice, live, func() { live.Finalizers = nil })).To(Succeed())
		Expect(operator.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Satisfy(apierrors.IsNotFound))
		Expect(tell(live.Name)()).To(Equal(want))
	})
})

// administrator returns the client of a user with all permissions.
func administrator() client.Client {
	GinkgoHelper()
	admin, err := client.New(environment.Config, client.Options{Scheme: environment.Scheme})
	Expect(err).NotTo(HaveOccurred())
	return admin
}
