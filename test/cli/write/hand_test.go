package write_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A lock that is taken by hand", func() {
	var namespace, folder string
	BeforeEach(func(ctx context.Context) {
		namespace, folder = cluster.Namespace(ctx, "hand-"), home()
	})

	It("is held until it is released", func(ctx context.Context) {
		acquired := lockAs(ctx, ann, folder, namespace, "", "acquire", "billing:report", "--reason", "by hand")
		Expect(acquired).To(succeed("billing:report acquired, fencing token "))
		held := stored(ctx, namespace, "billing:report")
		Expect(held.Spec).To(And(HaveField("Holder", ann.Name), HaveField("Reason", "by hand"), HaveField("TTL.Duration", 5*time.Minute)))
		Expect(tokenFiles(folder)).To(HaveLen(1))
		Expect(tokenFiles(folder)).To(HaveEach(os.FileMode(0o600)))

		busy := lockAs(ctx, bob, home(), namespace, "", "acquire", "billing:report")
		Expect(busy).To(failWith(201, "held by "+ann.Name+", for "))
		Expect(lockAs(ctx, ann, folder, namespace, "", "acquire", "billing:report")).To(failWith(201, "billing:report is held by you, for "))
		renewed := lockAs(ctx, ann, folder, namespace, "", "renew", "billing:report", "--ttl", "1h", "-o", "json")
		Expect(renewed).To(succeed(`"ttl": "1h0m0s"`))
		Expect(json.Valid([]byte(renewed.Out))).To(BeTrue())
		Expect(stored(ctx, namespace, "billing:report").Spec.ExpireTime.Time).To(BeTemporally(">", time.Now().Add(50*time.Minute)))
		expectNoToken(acquired, busy, renewed)

		Expect(lockAs(ctx, ann, folder, namespace, "", "release", "billing:report")).To(succeed("billing:report released"))
		Expect(stored(ctx, namespace, "billing:report")).To(BeNil())
		Expect(tokenFiles(folder)).To(BeEmpty())
	})

	It("is renewed and released by its own holder only", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, folder, namespace, "", "acquire", "k")).To(succeed("acquired"))
		Expect(lockAs(ctx, bob, folder, namespace, "", "release", "k")).To(Or(HaveField("Status", 204), HaveField("Status", 202)))
		Expect(stored(ctx, namespace, "k")).NotTo(BeNil(), "a token without the identity was enough")
	})

	It("is said to be lost once it was freed", func(ctx context.Context) {
		Expect(lockAs(ctx, ann, folder, namespace, "", "acquire", "k")).To(succeed("acquired"))
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "k", "--reason", "test", "--yes")).To(succeed("by force"))
		Expect(lockAs(ctx, bob, home(), namespace, "", "acquire", "k")).To(succeed("acquired"))
		Expect(lockAs(ctx, ann, folder, namespace, "", "renew", "k")).To(failWith(202, "you do not hold k any more"))
		Expect(stored(ctx, namespace, "k").Spec.Holder).To(Equal(bob.Name))
	})

	It("is waited for", func(ctx context.Context) {
		Expect(lockAs(ctx, bob, folder, namespace, "", "acquire", "k")).To(succeed("acquired"))
		waited := make(chan outcome)
		go func() {
			defer GinkgoRecover()
			waited <- lockAs(ctx, ann, home(), namespace, "", "acquire", "k", "--wait", "1m")
		}()
		Consistently(waited).WithTimeout(time.Second).ShouldNot(Receive())
		Expect(lockAs(ctx, bob, folder, namespace, "", "release", "k")).To(succeed("released"))
		Eventually(waited).WithTimeout(timeout).Should(Receive(succeed("acquired")))
		Expect(stored(ctx, namespace, "k").Spec.Holder).To(Equal(ann.Name))
	})

	It("is not taken by a wait that was interrupted", func(ctx context.Context) {
		Expect(lockAs(ctx, bob, folder, namespace, "", "acquire", "k")).To(succeed("acquired"))
		waiting := home()
		run := command(ctx, waiting, "acquire", "k", "--wait", "forever", "--kubeconfig", ann.Kubectl.Kubeconfig(), "-n", namespace)
		Expect(run.Start()).To(Succeed())
		Eventually(func() map[string]os.FileMode { return tokenFiles(waiting) }).WithTimeout(timeout).Should(HaveLen(1))
		Expect(run.Process.Signal(os.Interrupt)).To(Succeed())
		Expect(run.Wait()).NotTo(Succeed())
		Expect(tokenFiles(waiting)).To(BeEmpty())
		Expect(lockAs(ctx, bob, folder, namespace, "", "release", "k")).To(succeed("released"))
		Consistently(func() any { return stored(ctx, namespace, "k") }).WithTimeout(time.Second).Should(BeNil())
	})

	It("passes its token by a descriptor", func(ctx context.Context) {
		run := command(ctx, folder, "acquire", "k", "--owner-fd", "3", "--kubeconfig", ann.Kubectl.Kubeconfig(), "-n", namespace)
		read, write, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		run.ExtraFiles = []*os.File{write}
		Expect(finish(run, "")).To(succeed("acquired"))
		Expect(write.Close()).To(Succeed())
		Expect(tokenFiles(folder)).To(BeEmpty())
		run = command(ctx, folder, "release", "k", "--owner-fd", "3", "--kubeconfig", ann.Kubectl.Kubeconfig(), "-n", namespace)
		run.ExtraFiles = []*os.File{read}
		Expect(finish(run, "")).To(succeed("released"))
		Expect(read.Close()).To(Succeed())
	})

	It("is taken through kubectl", func(ctx context.Context) {
		run := command(ctx, folder, "lock")
		run.Path = filepath.Join(testenv.Assets(must(testenv.ModuleRoot())), "kubectl")
		run.Args = []string{"kubectl", "lock", "acquire", "k", "-n", namespace, "-o", "name"}
		run.Env = append(run.Env, "PATH="+filepath.Dir(program), "KUBECONFIG="+ann.Kubectl.Kubeconfig())
		Expect(finish(run, "")).To(succeed("lock.forrst.dev/k"))
		Expect(stored(ctx, namespace, "k").Spec.Holder).To(Equal(ann.Name))
	})

	It("is taken through a façade that knows no callers", func(ctx context.Context) {
		for _, step := range []struct{ command, says string }{{"acquire", "acquired"}, {"renew", "renewed"}, {"release", "released"}} {
			got := finish(command(ctx, folder, step.command, "by:hand", "--server", open), "")
			Expect(got).To(succeed("by:hand " + step.says))
			expectNoToken(got)
		}
		Expect(stored(ctx, "default", "by:hand")).To(BeNil())
	})

	It("is taken through a façade with a token", func(ctx context.Context) {
		cluster.AllowWorkers(ctx, namespace)
		file := tokenFile(ctx, namespace)
		run := func(args ...string) outcome {
			return finish(command(ctx, folder, append(args, "--server", closed, "--token-file", file)...), "")
		}
		Expect(run("acquire", "k")).To(succeed("k acquired"))
		Expect(stored(ctx, namespace, "k").Spec.Holder).To(HaveSuffix(":worker"))
		Expect(run("renew", "k")).To(succeed("k renewed"))
		Expect(run("free", "k", "--reason", "mine", "--yes")).To(failWith(204, "force-release"))
		Expect(run("release", "k")).To(succeed("k released"))
		Expect(finish(command(ctx, folder, "acquire", "k", "--server", closed), "")).To(HaveField("Status", 204))
	})
})

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
