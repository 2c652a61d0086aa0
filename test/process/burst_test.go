package process_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// floodRate is how many malformed creates there are each second, and acts how many forced releases,
	// and acquisitions, there are beside them.
	floodRate = 200
	acts      = 100
	// floodWidth is how many of the creates are under way at a time: a busy machine has fewer.
	floodWidth = 32
)

// flood creates malformed locks until ctx ends: admission refuses every third, and the API server refuses the
// others after admission.
type flood struct {
	namespace string
	begun     atomic.Int64
}

func (f *flood) create(ctx context.Context) {
	number := f.begun.Add(1)
	_ = flooder.Client.Create(ctx, fixture.Manifest(f.namespace, fmt.Sprint("malformed-", number), func(lock *v1alpha1.Lock) {
		if number%3 == 0 {
			lock.Spec.TTL = &v1alpha1.Duration{Duration: -time.Second}
		} else {
			lock.Labels = map[string]string{"not a label": "x"}
		}
	}))
}

// goOn creates at the rate until ctx ends.
func (f *flood) goOn(ctx context.Context) {
	var creates errgroup.Group
	creates.SetLimit(floodWidth)
	defer func() { _ = creates.Wait() }()
	ticker := time.NewTicker(time.Second / floodRate)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			creates.TryGo(func() error {
				f.create(ctx)
				return nil
			})
		}
	}
}

var _ = Describe("A burst of malformed creates", func() {
	It("hides no forced release and no acquisition", func(ctx context.Context) {
		startLoud(ctx)
		namespace := environment.Namespace(ctx, "audit-")
		locks := make([]*v1alpha1.Lock, acts)
		for number := range locks {
			locks[number] = fixture.Manifest(namespace, fmt.Sprint("forced-", number))
			Expect(worker.Client.Create(ctx, locks[number])).To(Succeed())
			locks[number].Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "it hangs"}
			Expect(administrator.Client.Update(ctx, locks[number])).To(Succeed())
		}
		malformed := &flood{namespace: namespace}
		flooding, stop := context.WithCancel(ctx)
		var going sync.WaitGroup
		going.Go(func() { malformed.goOn(flooding) })
		DeferCleanup(going.Wait)
		DeferCleanup(stop)
		for number, each := range locks {
			Expect(administrator.Client.Delete(ctx, each)).To(Succeed())
			Expect(worker.Client.Create(ctx, fixture.Manifest(namespace, fmt.Sprint("acquired-", number)))).To(Succeed())
		}
		counts := func() map[audit.Event]int {
			counted := map[audit.Event]int{}
			for _, record := range recorded(func(r audit.Record) bool { return r.Namespace == namespace && r.Actor != flooder.Name }) {
				counted[record.Event]++
			}
			return counted
		}
		Eventually(counts).Should(Equal(map[audit.Event]int{
			audit.Granted: 2 * acts, audit.ForceReleased: acts,
		}))
		stop()
		Eventually(func() []audit.Record {
			return recorded(func(r audit.Record) bool { return r.Event == audit.Omitted && r.Cause == audit.TooManyRefusals })
		}).Should(ContainElement(And(HaveField("Actor", flooder.Name), HaveField("Count", BeNumerically(">", 0)))),
			"what is not on record singly is told")
		Expect(recorded(func(r audit.Record) bool { return r.Actor == flooder.Name && r.Event == audit.Granted })).To(
			And(Not(BeEmpty()), HaveEach(HaveField("Admitted", true))), "what validation has refused was admitted")
		Expect(client.IgnoreNotFound(administrator.Client.Delete(ctx, locks[0]))).To(Succeed())
	})
})
