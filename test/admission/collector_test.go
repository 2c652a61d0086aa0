package admission_test

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

const collectorName = "system:serviceaccount:kube-system:generic-garbage-collector"

// collectorGate is a webhook that holds the deletes of the garbage collector: it has read
// the lock and decided by then, and the API server has not deleted anything yet.
type collectorGate struct {
	called  chan struct{} // by any user
	arrived chan struct{} // by the garbage collector
	opened  chan struct{}
	gaveUp  chan struct{} // the API server did not wait for the gate
	open    func()
}

// Handle implements [ctrladmission.Handler].
func (g *collectorGate) Handle(ctx context.Context, request ctrladmission.Request) ctrladmission.Response {
	note(g.called)
	if request.UserInfo.Username == collectorName {
		note(g.arrived)
		select {
		case <-g.opened:
		case <-ctx.Done():
			note(g.gaveUp)
		}
	}
	return ctrladmission.Allowed("")
}

// note sends to a channel with a buffer of one.
func note(happened chan<- struct{}) {
	select {
	case happened <- struct{}{}:
	default:
	}
}

// startCollectorGate returns when the API server asks the gate about deletes in the namespace.
func startCollectorGate(ctx context.Context, namespace string) *collectorGate {
	GinkgoHelper()
	gate := &collectorGate{
		called: make(chan struct{}, 1), arrived: make(chan struct{}, 1), opened: make(chan struct{}), gaveUp: make(chan struct{}, 1),
	}
	gate.open = sync.OnceFunc(func() { close(gate.opened) })
	server := httptest.NewTLSServer(&ctrladmission.Webhook{Handler: gate})
	DeferCleanup(server.Close)
	DeferCleanup(gate.open)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "collector.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{v1alpha1.GroupVersion.Version}, Resources: []string{"locks"},
				},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(30)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	Expect(root.Client.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(root.Client.Delete, configuration)
	probe := held(ctx, namespace, "probe")
	Eventually(func(ctx context.Context) <-chan struct{} {
		Expect(worker.Client.Delete(ctx, probe, client.DryRunAll)).To(Succeed())
		return gate.called
	}).WithContext(ctx).Should(Receive())
	return gate
}

// waitClock notes that a caller begins to wait for an hour.
type waitClock struct {
	clock.RealClock
	waits chan struct{}
}

// NewTimer implements [clock.Clock].
func (c waitClock) NewTimer(length time.Duration) clock.Timer {
	if length > 30*time.Minute {
		note(c.waits)
	}
	return c.RealClock.NewTimer(length)
}

// replica runs an engine as that of the façade, with an informer.
func replica(ctx context.Context) (made *engine.Engine, waits <-chan struct{}) {
	GinkgoHelper()
	httpClient, err := rest.HTTPClientFor(operator.Config)
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(operator.Config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	watching := waitClock{waits: make(chan struct{}, 1)}
	stream := engine.NewWatchStream(watching, logr.Discard())
	informer := objects.Informer("", stream)
	made, err = engine.New(engine.Options{
		Objects: objects.Locks, Informer: informer, Stream: stream, Limits: rules.DefaultLimits(), Clock: watching,
	})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { informer.RunWithContext(running) })
	DeferCleanup(func() {
		stop()
		ended.Wait()
	})
	startEngine(ctx, made)
	Eventually(informer.HasSynced).Should(BeTrue())
	return made, watching.waits
}

var _ = Describe("The garbage collector, which is about to delete the lock of a former holder with its owner", func() {
	var namespace string
	var gate *collectorGate
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		gate = startCollectorGate(ctx, namespace)
	})

	// collect waits for the delete that the garbage collector sends.
	collect := func(ctx context.Context, owner *corev1.ConfigMap) {
		GinkgoHelper()
		Expect(root.Client.Delete(ctx, owner)).To(Succeed())
		Eventually(gate.arrived).WithTimeout(systemTimeout).Should(Receive())
	}
	// collectExpired waits for the delete of a lock that has expired.
	collectExpired := func(ctx context.Context) *v1alpha1.Lock {
		GinkgoHelper()
		former, owner := ownedBy(ctx, namespace, "billing:report", fixture.TTL(time.Millisecond))
		Eventually(func() bool { return rules.Expired(former, time.Now()) }).WithPolling(5 * time.Millisecond).Should(BeTrue())
		collect(ctx, owner)
		return former
	}
	// expectSpared lets the garbage collector go on.
	expectSpared := func(ctx context.Context, next *v1alpha1.Lock) {
		GinkgoHelper()
		Expect(gate.gaveUp).NotTo(Receive(), "the API server did not wait for the gate")
		gate.open()
		Consistently(func(ctx context.Context) *v1alpha1.Lock { return stored(ctx, next) }).
			WithContext(ctx).WithTimeout(2*time.Second).WithPolling(100*time.Millisecond).
			Should(HaveField("Spec.Owner", next.Spec.Owner), "the lock of the next holder was deleted")
	}
	// expectSparedByUID does what the garbage collector of Kubernetes before 1.34 does: it deletes
	// whatever is stored under the UID of the former holder's lock.
	expectSparedByUID := func(ctx context.Context, former, next *v1alpha1.Lock) {
		GinkgoHelper()
		expectSpared(ctx, next)
		err := environment.Identity(collectorName).Client.Delete(ctx, former, client.Preconditions{UID: &former.UID})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(stored(ctx, next)).To(HaveField("Spec.Owner", next.Spec.Owner))
	}

	DescribeTable("spares the next holder, even by UID, after a take-over",
		func(ctx context.Context, start func(ctx context.Context, namespace string) *engine.Engine) {
			former := collectExpired(ctx)
			next, err := start(ctx, namespace).Acquire(ctx, namespace, requestFor("billing:report"))
			Expect(err).NotTo(HaveOccurred())
			expectSparedByUID(ctx, former, next)
		},
		Entry("by the façade", func(ctx context.Context, _ string) *engine.Engine {
			made, _ := replica(ctx)
			return made
		}),
		Entry("by a program with an identity of its own", func(ctx context.Context, namespace string) *engine.Engine {
			made, err := engine.NewDirect(stranger.Config, namespace, logr.Discard())
			Expect(err).NotTo(HaveOccurred())
			startEngine(ctx, made)
			return made
		}),
	)

	It("spares the waiter that gets the lock at its release, even by UID", func(ctx context.Context) {
		made, waits := replica(ctx)
		first := requestFor("billing:report")
		former, err := made.Acquire(ctx, namespace, first)
		Expect(err).NotTo(HaveOccurred())
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
		Expect(root.Client.Create(ctx, owner)).To(Succeed())
		current := stored(ctx, former)
		token, err := current.FencingToken() // The operator records it with every write that grants nothing.
		Expect(err).NotTo(HaveOccurred())
		current.Spec.FencingToken, current.OwnerReferences = &token, ownerReferences(owner)
		Expect(operator.Client.Update(ctx, current)).To(Succeed())
		proof := lock.Proof{Owner: first.Owner, Holder: first.Holder}
		// After it, the engine knows what is stored, and could hand it off.
		_, err = made.Renew(ctx, namespace, former.Spec.FullKey(), proof, 0)
		Expect(err).NotTo(HaveOccurred())

		var next *v1alpha1.Lock
		served := make(chan error, 1)
		go func() {
			second := requestFor("billing:report")
			second.Owner, second.Wait = "next-token", time.Hour
			var err error
			next, err = made.Acquire(ctx, namespace, second)
			served <- err
		}()
		Eventually(waits).Should(Receive())
		collect(ctx, owner)
		Expect(made.Release(ctx, namespace, former.Spec.FullKey(), proof)).To(Succeed())
		Eventually(served).Should(Receive(BeNil()))
		expectSparedByUID(ctx, former, next)
	})

	// The update keeps the UID. This needs the garbage collector of Kubernetes 1.34.
	It("spares the next holder after a take-over by a manifest", func(ctx context.Context) {
		former := collectExpired(ctx)
		_, err := run(ctx, stranger, namespace, own(namespace), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		next := stored(ctx, former)
		Expect(next).NotTo(BeNil())
		Expect(next.UID).To(Equal(former.UID))
		Expect(next.Spec.Owner).NotTo(Equal(former.Spec.Owner))
		expectSpared(ctx, next)
	})
})
