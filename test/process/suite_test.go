// Package process_test proves what the operator's own program does, with all its components, on an API server: no burst of
// requests hides an acquisition or a forced release from the audit, no token and no body is told at any verbosity, its metrics
// are those of the catalogue, and it stays within its memory.
package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	// patience bounds what must happen, on a busy machine.
	patience = 2 * time.Minute
	// audience is that of the tokens for the façade.
	audience = "lock-operator.forrst.dev"
)

func TestProcess(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "The operator's process")
}

var (
	environment *fixture.Cluster
	// worker acquires locks, administrator may force releases, flooder has every other right on locks, and editor may write
	// locks and Jobs of every namespace. Admission judges the writes of all.
	worker, administrator, flooder, editor fixture.Identity
	// webhookFlags point a process at the address and the certificate of the webhook, so there is one process at a time.
	webhookFlags []string
	// process is the one that startLoud has started: the audit is its output, and the log its errors.
	process *gexec.Session
	// facadeURL is the URL of the façade of the process that has been started last.
	facadeURL string
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	const administrators, editors = "lock-administrators", "editors-of-jobs"
	environment.AllowGroup(ctx, administrators, []string{v1alpha1.GroupVersion.Group}, []string{"locks"}, []string{"force-release"})
	environment.AllowGroup(ctx, editors, []string{batchv1.GroupName}, []string{"jobs"}, []string{"get", "list", "watch", "create", "update", "patch", "delete"})
	worker = environment.Identity("worker", testenv.TestersGroup)
	flooder = environment.Identity("flooder", testenv.TestersGroup)
	administrator = environment.Identity("administrator", testenv.TestersGroup, administrators)
	editor = environment.Identity("editor", testenv.TestersGroup, editors)
	scraper = scraperToken(ctx)
	controllers, err := environment.StartControllerManager("namespace-controller", "garbage-collector-controller")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllers.Stop)
	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	webhookFlags = environment.WebhookFlags(host, port, certDir)
})

// start starts a process with a façade, which ends with the spec or the container.
func start(ctx context.Context, flags ...string) *gexec.Session {
	GinkgoHelper()
	address := fixture.FreeAddress(ctx)
	facadeURL = "http://" + address
	return fixture.StartOperator(ctx, environment.Operator().Kubectl, append(append(flags, webhookFlags...),
		"--leader-election-namespace="+testenv.OperatorNamespace, "--facade-bind-address="+address, "--facade-shutdown-delay=0s")...)
}

// startLoud starts a process at the highest verbosity.
func startLoud(ctx context.Context) {
	GinkgoHelper()
	process = start(ctx, "--zap-log-level=10", "--zap-devel", "--leader-elect=false", "--max-locks-per-namespace=0")
}

// recorded returns the records so far for which isWanted is true.
func recorded(isWanted func(audit.Record) bool) []audit.Record {
	GinkgoHelper()
	var records []audit.Record
	text := process.Out.Contents()
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var record audit.Record
		Expect(json.Unmarshal(line, &record)).To(Succeed(), "%s", line)
		records = append(records, record)
	}
	return slices.DeleteFunc(records, func(record audit.Record) bool { return !isWanted(record) })
}
