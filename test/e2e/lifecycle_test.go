package e2e_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

// The API server counts the requests of all clients. In the cluster that other specs use, locks of theirs expire, and what an
// outage has left open is still looked after.
var _ = Describe("The development cluster", Ordered, func() {
	var (
		own     *cluster
		service *routedService
	)
	BeforeAll(func() {
		service = newRoutedService()
		own = startCluster("--routes", service.file)
	})

	It("serves the first lock, on loopback only", func(ctx context.Context) {
		Expect(own.acquire(ctx, "first", "job-17", 60)).To(beAcquired())
		var programs []string
		running := processes(own.dir)
		for _, pid := range running {
			programs = append(programs, program(pid))
		}
		Expect(programs).To(ConsistOf("devcluster", "etcd", "kube-apiserver", "kube-controller-manager", "lock-operator"))
		addresses := listeners(running...)
		Expect(len(addresses)).To(BeNumerically(">=", 5), "etcd, API server, controller manager, webhook, façade")
		Expect(addresses).To(HaveEach(Satisfy(isLoopback)))
		info, err := os.Stat(own.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	})

	It("spends two writes, no read and no webhook call on an acquire and a release", func(ctx context.Context) {
		spendTwoWrites(ctx, own)
	})

	It("makes one webhook call for a direct write", func(ctx context.Context) { spendOneWebhookCall(ctx, own) })

	It("runs a routed function inside its lock for as long as it takes, wherever its route leads", func(ctx context.Context) {
		service.run(ctx, own)
	})

	It("leaves nothing behind", func(context.Context) {
		own.session.Terminate()
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit(0))
		Expect(processes(own.dir)).To(BeEmpty())
		Expect(refuses(strings.TrimPrefix(own.facade, "http://"))).To(BeTrue())
	})
})

var _ = Describe("The development cluster that cannot start", func() {
	It("refuses a port in use before it starts anything", func(ctx context.Context) {
		taken, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(taken.Close)
		dir := filepath.Join(GinkgoT().TempDir(), "dev")
		session := launch(dir, taken.Addr().String())
		Eventually(session).WithTimeout(stopTimeout).Should(gexec.Exit(1))
		Expect(string(session.Err.Contents())).To(And(ContainSubstring(taken.Addr().String()), ContainSubstring("in use")))
		Expect(processes(dir)).To(BeEmpty())
	})

	It("names a missing binary and how to get it", func(context.Context) {
		binaries := GinkgoT().TempDir()
		session := launch(filepath.Join(GinkgoT().TempDir(), "dev"), "127.0.0.1:0", "--binaries", binaries)
		Eventually(session).WithTimeout(stopTimeout).Should(gexec.Exit(1))
		Expect(string(session.Err.Contents())).To(And(ContainSubstring("kube-apiserver"), ContainSubstring(binaries), ContainSubstring("make control-plane")))
	})
})
