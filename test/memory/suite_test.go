package memory_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// patience bounds what must happen, on a busy machine.
const patience = 2 * time.Minute

func TestMemory(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Memory")
}

var (
	environment *fixture.Cluster
	// editor may write the locks and the Jobs of every namespace. Admission judges its writes.
	editor client.Client
	// webhookFlags point the operator's process at the webhook's address and certificate.
	webhookFlags []string
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	const editors = "editors-of-jobs"
	environment.AllowGroup(ctx, editors, []string{batchv1.GroupName}, []string{"jobs"},
		[]string{"get", "list", "watch", "create", "update", "patch", "delete"})
	identity := environment.Identity("editor", testenv.TestersGroup, editors)
	editor = identity.Client
	controllers, err := environment.StartControllerManager("namespace-controller", "garbage-collector-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllers.Stop)
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	webhookFlags = []string{fmt.Sprintf("--webhook-bind-address=%s:%d", host, port), "--webhook-cert-dir=" + certDir, "--webhook-drain-timeout=0s"}
})

// scale is the part of the shipped bounds, and of the memory for them, that the suite runs with.
// MEMORY_SCALE=1 takes some minutes, and more than a GiB of etcd.
func scale() float64 {
	text := os.Getenv("MEMORY_SCALE")
	if text == "" {
		return 0.1
	}
	parsed, err := strconv.ParseFloat(text, 64)
	Expect(err).NotTo(HaveOccurred(), "MEMORY_SCALE")
	return parsed
}
