package holders_test

import (
	"context"
	"errors"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/holders"
)

// cable connects a replica to the API server, until it is cut.
type cable struct {
	mu    sync.Mutex
	isCut bool
	ends  []net.Conn
}

// connect makes a client use the cable.
func (c *cable) connect(config *rest.Config) {
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.isCut {
			return nil, errors.Join(errors.New("the cable is cut"), connection.Close())
		}
		c.ends = append(c.ends, connection)
		return connection, nil
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, end := range c.ends {
		_ = end.Close() // It may have been closed before.
	}
	c.ends = nil
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}

var _ = Describe("A leader that loses its connection", func() {
	It("leaves the release of locks to the next leader", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		wire := &cable{}
		first, second := environment.MortalCandidate("crash", wire.connect), environment.Candidate("crash")
		manager, err := environment.NewManagerFor(wire.connect)
		Expect(err).NotTo(HaveOccurred())
		runOperator(ctx, manager, first, func(*holders.Reconciler) {})
		Eventually(first.IsLeader).Should(BeTrue())
		startOperator(ctx, second)
		deleted, failed, alive := running(ctx, namespace, "deleted"), running(ctx, namespace, "failed"), running(ctx, namespace, "alive")
		one, two := held(ctx, namespace, "deleted", podRef(deleted)), held(ctx, namespace, "failed", podRef(failed))
		kept := held(ctx, namespace, "alive", podRef(alive))
		expectHeld(ctx, one)

		wire.cut()
		remove(ctx, deleted)
		setPhase(ctx, failed, corev1.PodFailed, "")
		Expect(exists(ctx, one)()).To(BeTrue(), "no replica leads that can release it")
		expectReleased(ctx, one)
		expectReleased(ctx, two)
		Expect(second.IsLeader()).To(BeTrue())

		By("coming back")
		wire.mend()
		Eventually(first.IsLeader).Should(BeFalse())
		expectHeld(ctx, kept)
		Expect(second.IsLeader()).To(BeTrue())
		remove(ctx, alive)
		expectReleased(ctx, kept)
		for _, released := range []*v1alpha1.Lock{one, two, kept} {
			Eventually(recorded(released)).Should(HaveLen(1))
		}
	})
})
