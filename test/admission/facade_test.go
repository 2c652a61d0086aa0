package admission_test

import (
	"context"
	"net/http/httptest"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// facadeUser is the caller of the façade.
const facadeUser = "caller"

// startFacade runs a façade for the namespace and a reaper, without a webhook, for the
// spec.
func startFacade(ctx context.Context, namespace string) *facadeclient.Client {
	GinkgoHelper()
	manager, err := environment.NewManager()
	Expect(err).NotTo(HaveOccurred())
	objects, err := engine.NewObjectClient(manager.GetConfig(), manager.GetHTTPClient())
	Expect(err).NotTo(HaveOccurred())
	engine, err := engine.New(engine.Options{
		Objects: objects.Locks,
		Limits:  rules.DefaultLimits(),
		Audit:   auditlog.WithEvents(manager.GetEventRecorder("lock-operator"), nil),
	})
	Expect(err).NotTo(HaveOccurred())
	leadership := leadership.Always()
	Expect(manager.Add(leadership)).To(Succeed())
	Expect(manager.Add(engine)).To(Succeed())
	Expect((&expiry.Reconciler{
		Client: manager.GetClient(), Clock: clock.RealClock{}, Leadership: leadership,
	}).SetupWithManager(manager)).To(Succeed())
	DeferCleanup(testenv.StartManager(ctx, manager))

	handler, err := testfacade.New(testfacade.Settings{
		Locks: engine, Access: fixture.SingleUser(facadeUser),
	})
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	made, err := facadeclient.New(server.URL, facadeclient.WithNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	return made
}

// startEngine runs the engine until the spec ends.
func startEngine(ctx context.Context, made *engine.Engine) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- made.Start(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).NotTo(HaveOccurred())
	})
}

func requestFor(key string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: "facade-token", Holder: facadeUser}}
}

var _ = Describe("A forced release by a Go program", func() {
	var namespace string
	var key v1alpha1.FullKey
	var billing *v1alpha1.Lock
	BeforeEach(func(ctx context.Context) {
		namespace, key = newNamespace(ctx), v1alpha1.FullKeyOf("billing:report")
		billing = held(ctx, namespace, "billing:report")
	})
	// force releases through an engine with the identity of the user.
	force := func(ctx context.Context, who fixture.Identity, reason string) error {
		GinkgoHelper()
		engine, err := engine.NewDirect(who.Config, namespace, logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		startEngine(ctx, engine)
		return engine.ForceRelease(ctx, namespace, key, reason)
	}

	It("through the façade leaves a Warning", func(ctx context.Context) {
		Expect(startFacade(ctx, namespace).ForceRelease(ctx, namespace, key, "the node burnt down")).To(Succeed())
		expectGone(ctx, billing)
		Eventually(eventsOf(ctx, namespace)).Should(HaveLen(1))
		event := eventsOf(ctx, namespace)()[0]
		Expect(event.Reason).To(Equal(auditlog.ReasonForceReleased))
		Expect(event.Note).To(HaveSuffix(`was released by force by "caller": the node burnt down`))
	})

	It("with the right of its user records the reason", func(ctx context.Context) {
		Expect(force(ctx, administrator, "")).To(MatchError(lock.ErrInvalid))
		expectUntouched(ctx, billing)
		Expect(force(ctx, administrator, "the node burnt down")).To(Succeed())
		expectGone(ctx, billing)
		Eventually(eventsOf(ctx, namespace)).Should(HaveLen(1))
		Expect(eventsOf(ctx, namespace)()[0].Note).To(HaveSuffix(`is being released by force by "administrator": the node burnt down`))
	})

	It("without the right of its user is refused", func(ctx context.Context) {
		Expect(force(ctx, stranger, "mine")).To(beRefused(billing))
		expectUntouched(ctx, billing)
	})

	It("by the holder needs no right and leaves no Warning", func(ctx context.Context) {
		Expect(force(ctx, worker, "my other pod is gone")).To(Succeed())
		expectGone(ctx, billing)
		Expect(eventsOf(ctx, namespace)()).To(BeEmpty())
	})
})
