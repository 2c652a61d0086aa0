package jobs_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("The operator's process", func() {
	It("is killed, and still every Job runs once and alone", func(ctx context.Context) { killOperator(ctx, 1, 40, 8) })
})

// killOperator kills the operator's process so many times while Jobs of so many keys run and wait. The environment variable
// SEED draws other moments than those of seed 1.
func killOperator(ctx context.Context, kills, jobs, keys int) {
	GinkgoHelper()
	const killEvery, killPatience = 1500 * time.Millisecond, 5 * time.Minute
	namespace := newNamespace(ctx)
	binary, err := testenv.Build(ctx, "cmd/lock-operator")
	Expect(err).NotTo(HaveOccurred())
	kubeconfig := environment.Operator().Kubectl.Kubeconfig()
	run := func() *gexec.Session {
		GinkgoHelper()
		command := exec.Command(binary, "--components=controller", "--leader-elect=false", "--kubeconfig="+kubeconfig,
			"--health-probe-bind-address=0", "--clock-skew-allowance=0s")
		session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		return session
	}
	session := run()
	DeferCleanup(func() { session.Kill() })

	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	Expect(err).NotTo(HaveOccurred(), "SEED")
	AddReportEntry("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	created := make([]*batchv1.Job, jobs)
	for i := range created {
		created[i] = create(ctx, makeJob(namespace, fmt.Sprintf("job-%03d", i), fmt.Sprintf("key-%d", i%keys),
			runFor(fmt.Sprintf("%dms", random.IntN(200)))))
	}
	for range kills {
		pause := time.After(killEvery/2 + time.Duration(random.Int64N(int64(killEvery))))
		Eventually(pause).WithPolling(time.Millisecond).Should(Receive())
		session.Kill()
		Eventually(session).Should(gexec.Exit())
		session = run()
	}

	for _, job := range created {
		Eventually(has(ctx, job, batchv1.JobComplete)).WithTimeout(killPatience).WithPolling(100*time.Millisecond).Should(BeTrue(), job.Name)
	}
	expectNoViolations(ctx)
	Expect(lockedOrders(namespace)).To(HaveLen(keys))
	starts := map[types.UID]int{}
	for _, started := range node.Starts() {
		starts[started.UID]++
	}
	for _, job := range created {
		Expect(starts[job.UID]).To(Equal(1), "starts of %s", job.Name)
	}
}
