package jobs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	killedJobs   = 100
	killedKeys   = 20
	kills        = 10
	killEvery    = 1500 * time.Millisecond
	killPatience = 3 * time.Minute
)

var _ = Describe("The operator's process", func() {
	It("is killed at ten moments, and still every Job runs once and alone", func(ctx context.Context) {
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

		seed := uint64(GinkgoRandomSeed())
		random := rand.New(rand.NewPCG(seed, 0))
		created := make([]*batchv1.Job, killedJobs)
		for i := range created {
			created[i] = create(ctx, makeJob(namespace, fmt.Sprintf("job-%03d", i), fmt.Sprintf("key-%d", i%killedKeys),
				runFor(fmt.Sprintf("%dms", random.IntN(200)))))
		}
		for range kills {
			pause := time.After(killEvery/2 + time.Duration(random.Int64N(int64(killEvery))))
			Eventually(pause).WithTimeout(2 * killEvery).WithPolling(time.Millisecond).Should(Receive())
			session.Kill()
			Eventually(session).Should(gexec.Exit())
			session = run()
		}

		for _, job := range created {
			Eventually(has(ctx, job, batchv1.JobComplete)).WithTimeout(killPatience).WithPolling(100*time.Millisecond).Should(BeTrue(), job.Name)
		}
		expectNoViolations(ctx)
		Expect(lockedOrders(namespace)).To(HaveLen(killedKeys))
		starts := map[types.UID]int{}
		for _, started := range node.Starts() {
			starts[started.UID]++
		}
		for _, job := range created {
			Expect(starts[job.UID]).To(Equal(1), "starts of %s", job.Name)
		}
	})
})

// lockedOrders returns what was started of each key of a namespace, in order, and checks
// that fencing tokens grow.
func lockedOrders(namespace string) map[string][]string {
	GinkgoHelper()
	orders, tokens := map[string][]string{}, map[string]string{}
	for _, started := range node.Starts() {
		if !isIn(started, namespace) {
			continue
		}
		orders[started.Key] = append(orders[started.Key], started.Job)
		Expect(number(started.Token)).To(BeNumerically(">", number(tokens[started.Key])), "the token of %s", started.Job)
		tokens[started.Key] = started.Token
	}
	for key, order := range orders {
		Expect(order).To(HaveExactElements(sorted(order)), key)
	}
	return orders
}

func sorted(names []string) []any {
	var expected []any
	for _, name := range slices.Sorted(slices.Values(names)) {
		expected = append(expected, name)
	}
	return expected
}
