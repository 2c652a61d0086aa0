package process_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/test/support/fixture"
)

// held are waits for one lock.
type held struct{ lock *v1alpha1.Lock }

func (h held) WaitedFor(each func(*v1alpha1.Lock, int)) { each(h.lock, 2) }

// hurried is a clock whose minutes last a second.
type hurried struct {
	clock.RealClock
	began time.Time
}

func (h hurried) Now() time.Time { return h.began.Add(60 * time.Since(h.began)) }

func (h hurried) NewTicker(period time.Duration) clock.Ticker {
	return h.RealClock.NewTicker(period / 60)
}

var _ = Describe("kubectl", func() {
	BeforeEach(startMeasured) // The webhook judges the locks.

	eventsFor := func(ctx context.Context, namespace, name string) func() (string, error) {
		return func() (string, error) {
			return environment.Admin.Kubectl.Run(ctx, "", "events", "-n", namespace, "--for", "lock.forrst.dev/"+name)
		}
	}

	It("shows why a lock that was not released is gone", func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "events-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		path := "/v1/namespaces/" + namespace + "/locks/crashed"
		Eventually(func() int { return call(ctx, http.MethodPost, path, token, `{"ttl_seconds":2}`) }).Should(Equal(http.StatusCreated))
		Eventually(eventsFor(ctx, namespace, "crashed")).Should(And(
			ContainSubstring("Expired"), ContainSubstring(`held by "system:serviceaccount:`+namespace+`:worker", expired at `)))
		var all eventsv1.EventList
		Expect(environment.Admin.Client.List(ctx, &all, client.InNamespace(namespace))).To(Succeed())
		Expect(all.Items).To(HaveLen(1))
	})

	It("describes a lock that keeps callers waiting for long", func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "events-")
		lock := fixture.Manifest(namespace, "busy")
		Expect(environment.Admin.Client.Create(ctx, lock)).To(Succeed())
		manager, err := environment.NewManager() // With the rights of the operator.
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.Add(&lockevents.LongWaits{
			Waits: held{lock}, Clock: hurried{began: time.Now()},
			Reporter: &lockevents.Reporter{Recorder: lockevents.Bounded(manager.GetEventRecorder("lock-operator"), clock.RealClock{})},
		})).To(Succeed())
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- manager.Start(running) }()
		Eventually(func() (string, error) {
			return environment.Admin.Kubectl.Run(ctx, "", "describe", "lock", "busy", "-n", namespace)
		}).Should(And(ContainSubstring("WaitingLong"), ContainSubstring("now 2 of them")))
		stop()
		Expect(<-ended).NotTo(HaveOccurred())
		end(ctx, lock)
	})
})
