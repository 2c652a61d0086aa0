// Package audit_test proves that no burst of requests hides an acquisition or a forced release from
// the audit, and that the operator's process tells no token or body at any verbosity: with its own
// program, which runs all components at the highest verbosity, on an API server.
package audit_test

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

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// patience has room for a slow machine.
const patience = time.Minute

func TestAudit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The audit of the operator's process")
}

var (
	environment *fixture.Cluster
	// worker acquires locks, administrator may force releases, and flooder has every other right on locks.
	worker, administrator, flooder fixture.Identity
	// process is that of the operator: the audit is its output, and the log its errors.
	process *gexec.Session
	facade  string
)

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(patience)
	environment = fixture.Start(ctx)
	worker = environment.Identity("worker", testenv.TestersGroup)
	flooder = environment.Identity("flooder", testenv.TestersGroup)
	administrator = environment.Identity("administrator", testenv.TestersGroup, "lock-administrators")
	environment.AllowGroup(ctx, "lock-administrators", []string{v1alpha1.GroupVersion.Group}, []string{"locks"}, []string{"force-release"})

	host, port, certDir, err := environment.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	address := fixture.FreeAddress(ctx)
	facade = "http://" + address
	process = fixture.StartOperator(ctx, environment.Operator().Kubectl, append(environment.WebhookFlags(host, port, certDir),
		"--zap-log-level=10", "--zap-devel", "--leader-elect=false", "--leader-election-namespace="+testenv.OperatorNamespace,
		"--facade-bind-address="+address, "--facade-shutdown-delay=0s", "--max-locks-per-namespace=0")...)
})

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
