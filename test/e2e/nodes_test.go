package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("The development cluster with a simulated node", Ordered, func() {
	var own *cluster
	BeforeAll(func() { own = startCluster("--nodes=1", "--kwok="+filepath.Join(root, "bin", "kwok")) })

	It("lets the sample Job run under its lock, and another one wait, run and finish", func(ctx context.Context) {
		sample, err := os.ReadFile(filepath.Join(root, "config", "samples", "jobs", "job.yaml"))
		Expect(err).NotTo(HaveOccurred())
		again := strings.Replace(string(sample), "name: billing-report", "name: billing-report-again", 1)
		for _, manifest := range []string{string(sample), again} {
			_, err = own.kubectl.Run(ctx, manifest, "apply", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
		}
		kubectl := func(arguments ...string) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) { return own.kubectl.Run(ctx, "", arguments...) }
		}

		By("running one of them at a time")
		Eventually(kubectl("get", "job", "billing-report", "-o", "jsonpath={.status.ready}")).WithContext(ctx).WithTimeout(startTimeout).Should(Equal("1"))
		Expect(kubectl("get", "job", "billing-report-again", "-o", "jsonpath={.spec.suspend}")(ctx)).To(Equal("true"))

		By("finishing both, and ending the lock")
		Eventually(kubectl("get", "jobs", "-o", "jsonpath={.items[*].status.succeeded}")).WithContext(ctx).WithTimeout(startTimeout).Should(Equal("1 1"))
		Eventually(kubectl("get", "locks", "-o", "name")).WithContext(ctx).WithTimeout(startTimeout).Should(BeEmpty())
		Expect(processes(own.dir)).To(HaveLen(7), "with kube-scheduler and kwok")
	})

	It("ends with one error if the API server dies", func(context.Context) {
		signal(own.process("kube-apiserver"), syscall.SIGKILL)
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit(1))
		Expect(string(own.session.Err.Contents())).To(And(ContainSubstring("kube-apiserver"), ContainSubstring("killed")))
		Expect(processes(own.dir)).To(BeEmpty())
	})

	It("names the missing binary that simulates nodes", func(context.Context) {
		session := launch(filepath.Join(GinkgoT().TempDir(), "dev"), "127.0.0.1:0", "--nodes=1", "--kwok=/nonexistent/kwok")
		Eventually(session).WithTimeout(stopTimeout).Should(gexec.Exit(1))
		Expect(string(session.Err.Contents())).To(And(ContainSubstring("/nonexistent/kwok"), ContainSubstring("make bin/kwok")))
	})
})
