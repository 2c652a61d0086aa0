package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/lock/audit"
)

// audited returns what the operator has recorded about the lock with the name: event,
// reason and way.
func (c *cluster) audited(name string) func(Gomega) []string {
	return func(g Gomega) []string {
		var records []audit.Record
		for line := range bytes.Lines(c.operatorLogs(g)) {
			var record audit.Record
			if bytes.HasPrefix(line, []byte(`{"schema":`)) && json.Unmarshal(line, &record) == nil && record.Lock == name {
				records = append(records, record)
			}
		}
		slices.SortStableFunc(records, func(a, b audit.Record) int { return a.Time.Compare(b.Time.Time) })
		told := []string{}
		for _, record := range records {
			told = append(told, string(record.Event)+"/"+string(record.Reason)+"/"+string(record.Via))
		}
		return told
	}
}

// operatorLogs returns what all processes of the operator have logged, one after the other.
func (c *cluster) operatorLogs(g Gomega) []byte {
	paths, err := filepath.Glob(filepath.Join(c.logs, "lock-operator*.log"))
	g.Expect(err).NotTo(HaveOccurred())
	var all []byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, text...)
	}
	return all
}

var _ = Describe("The audit", Label(installed), func() {
	It("has one record of each grant, renewal and end of a lock", func(ctx context.Context) {
		Expect(shared.acquire(ctx, "e2e-audit", "secret-of-the-audit", 60)).To(beAcquired())
		_, err := shared.kubectl.Run(ctx, "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: e2e-audit}\nspec: {key: e2e-audit}\n", "create", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(shared.call(ctx, "release", map[string]any{"key": "lock:e2e-audit", "owner": "secret-of-the-audit"}).Status).To(Equal(200))
		Expect(shared.acquire(ctx, "e2e-audit", "secret-of-the-audit", 1)).To(beAcquired())
		want := []string{"Granted//facade", "Released/ByOwner/facade", "Granted//facade", "Expired/Reaped/controller"}
		// If the webhook's cache did not know the lock yet, the create was admitted, and refused by etcd.
		Eventually(shared.audited("e2e-audit")).WithTimeout(startTimeout).Should(SatisfyAny(
			Equal(slices.Insert(slices.Clone(want), 1, "Granted//admission")), Equal(slices.Insert(slices.Clone(want), 1, "Refused/Held/admission")),
		))
		Expect(string(shared.operatorLogs(Default))).NotTo(ContainSubstring("secret-of-the-audit"))
	})

	It("records the locks that were deleted with their namespace", func(ctx context.Context) {
		_, err := shared.kubectl.Run(ctx, "", "create", "namespace", "audited")
		Expect(err).NotTo(HaveOccurred())
		_, err = shared.kubectl.Run(ctx, "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: e2e-audit-namespace, namespace: audited}\nspec: {key: e2e-audit-namespace}\n", "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		_, err = shared.kubectl.Run(ctx, "", "delete", "namespace", "audited", "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
		Eventually(shared.audited("e2e-audit-namespace")).WithTimeout(startTimeout).Should(Equal(
			[]string{"Granted//admission", "Released/NamespaceDeleted/admission"},
		))
	})
})
