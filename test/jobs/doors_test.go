package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/testenv"
)

// door is a way to a lock other than that of Jobs.
type door struct {
	// try acquires the lock of the key "shared". The error says if it is held.
	try func(context.Context) error
	// free ends the lock.
	free func(context.Context) error
	// holder is the name that others see.
	holder string
}

var _ = Describe("A lock that a Job shares with others", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		startOperator(ctx)
	})
	AfterEach(expectNoViolations)

	DescribeTable("excludes both ways the Job and", func(ctx context.Context, open func(context.Context, string) *door) {
		other := open(ctx, namespace)
		Expect(other.try(ctx)).To(Succeed())
		job := create(ctx, makeJob(namespace, "job", "shared"))
		Eventually(func() (string, error) { return kubectl.Run(ctx, "", "describe", "job", "job", "-n", namespace) }).
			Should(ContainSubstring("Waits at place 1 of 1: lock:shared is held by %q until ", other.holder))
		Expect(startsOf(namespace)).To(BeEmpty())
		Expect(other.free(ctx)).To(Succeed())

		Eventually(isRunning(ctx, job)).Should(BeTrue())
		Expect(other.try(ctx)).To(MatchError(ContainSubstring("held by %q", testenv.OperatorUser)))
		Expect(kubectl.Run(ctx, "", "get", "locks", "-n", namespace)).To(ContainSubstring("shared"))
		Expect(lockOf(ctx, namespace, "shared").Spec.Reason).To(Equal("Job job"))
		finish(ctx, job)
		Eventually(other.try).WithArguments(ctx).Should(Succeed())
		Expect(other.free(ctx)).To(Succeed())
		Expect(tokensOf(namespace)).To(HaveExactElements(BeNumerically(">", 0)))
	},
		Entry("an applied manifest", manifestDoor),
		Entry("a Go program that asks the API server", programDoor),
		Entry("a caller of the façade", callerDoor),
		Entry("a pod that calls the façade with its token", podDoor),
	)
})

var _ = Describe("An outage that is longer than the ttl", func() {
	It("lets a caller of the façade take the lock of a Job, which starts over when the lock is free", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		caller := callerDoor(ctx, namespace)
		first := startOperator(ctx)
		job := create(ctx, makeJob(namespace, "job", "shared", annotated(v1alpha1.LockTTLAnnotation, "15s")))
		Eventually(isRunning(ctx, job)).Should(BeTrue())
		first.Stop()
		Expect(caller.try(ctx)).To(MatchError(lock.ErrHeld))
		Eventually(caller.try).WithArguments(ctx).Should(Succeed())
		Expect(isRunning(ctx, job)()).To(BeTrue(), "no replica is there to stop it")

		startOperator(ctx)
		Eventually(eventsOf(ctx, job)).Should(ContainSubstring("Warning LockLost"))
		Eventually(isRunning(ctx, job)).Should(BeFalse())
		Eventually(eventsOf(ctx, job)).Should(ContainSubstring("Normal LockWaiting"))
		Expect(caller.free(ctx)).To(Succeed())
		finish(ctx, job)
		Expect(startsOf(namespace)).To(Equal([]string{"job", "job"}))
		tokens := tokensOf(namespace)
		Expect(tokens[1]).To(BeNumerically(">", tokens[0]))
		expectNoViolations(ctx)
	})
})

func manifestDoor(_ context.Context, namespace string) *door {
	name := v1alpha1.FullKeyOf("shared").ObjectName()
	manifest := fmt.Sprintf("{apiVersion: forrst.dev/v1alpha1, kind: Lock, metadata: {name: %s}, spec: {key: shared, owner: manifest, ttl: 1h}}", name)
	return &door{
		holder: "admin",
		try: func(ctx context.Context) error {
			_, err := kubectl.Run(ctx, manifest, "apply", "-n", namespace, "-f", "-")
			return err
		},
		free: func(ctx context.Context) error {
			_, err := kubectl.Run(ctx, "", "delete", "lock", name, "-n", namespace)
			return err
		},
	}
}

func programDoor(ctx context.Context, namespace string) *door {
	GinkgoHelper()
	program := environment.Identity("program", testenv.TestersGroup)
	engine, err := engine.NewDirect(program.Config, namespace, logr.Discard())
	Expect(err).NotTo(HaveOccurred())
	run(ctx, engine)
	return backendDoor(engine, namespace, program.Name)
}

func callerDoor(ctx context.Context, namespace string) *door {
	GinkgoHelper()
	backend, err := facadeclient.New(environment.StartFacade(ctx, namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(backend.Close)
	return backendDoor(backend, namespace, access.Anonymous)
}

// podDoor has a pod call the façade with the token that is projected into it.
func podDoor(ctx context.Context, namespace string) *door {
	GinkgoHelper()
	environment.AllowWorkers(ctx, namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker-0", Annotations: map[string]string{kubelet.RunFor: "forever"}},
		Spec:       makeJob(namespace, "", "").Spec.Template.Spec,
	}
	pod.Spec.ServiceAccountName = fixture.Worker
	Expect(admin.Create(ctx, pod)).To(Succeed())
	token := environment.WorkerToken(ctx, pod)
	backend, err := facadeclient.New(environment.StartFacade(ctx, ""),
		facadeclient.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(backend.Close)
	return backendDoor(backend, namespace, "system:serviceaccount:"+namespace+":worker")
}

// backendDoor is that of the SDK, whatever it asks.
func backendDoor(backend lock.Backend, namespace, holder string) *door {
	locks := lock.NewClient(backend, namespace)
	var held *lock.Held
	return &door{
		holder: holder,
		try: func(ctx context.Context) (err error) {
			held, err = locks.TryAcquire(ctx, "shared", lock.WithTTL(time.Minute))
			return err
		},
		free: func(ctx context.Context) error {
			if held == nil {
				return errors.New("it is not held")
			}
			return held.Release(ctx)
		},
	}
}

// run runs the engine until the end of the spec.
func run(ctx context.Context, engine *engine.Engine) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(engine.Start(running)).To(Succeed())
	})
	DeferCleanup(func() {
		stop()
		ended.Wait()
	})
}
