package e2e_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("The development cluster", func() {
	It("serves the first lock within 15 seconds, on loopback only, and leaves nothing behind", func(ctx context.Context) {
		launched := time.Now()
		own := startCluster()
		Expect(own.acquire(ctx, "first", "job-17", 60)).To(beAcquired())
		AddReportEntry("time to the first lock", time.Since(launched).String(), ReportEntryVisibilityFailureOrVerbose)
		Expect(time.Since(launched)).To(BeNumerically("<", 15*time.Second))

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

		own.session.Terminate()
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit(0))
		Expect(processes(own.dir)).To(BeEmpty())
		Expect(refuses(strings.TrimPrefix(own.facade, "http://"))).To(BeTrue())
	})

	It("ends with one error if the API server dies", func(context.Context) {
		own := startCluster()
		signal(own.process("kube-apiserver"), syscall.SIGKILL)
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit(1))
		Expect(string(own.session.Err.Contents())).To(And(ContainSubstring("kube-apiserver"), ContainSubstring("killed")))
		Expect(processes(own.dir)).To(BeEmpty())
	})

	It("leaves no process behind when it is killed", func(context.Context) {
		own := startCluster()
		own.session.Kill()
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit())
		Eventually(func() []int { return processes(own.dir) }).WithTimeout(stopTimeout).Should(BeEmpty())
	})

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
