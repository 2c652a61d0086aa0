package write_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A run of several keys", func() {
	var namespace string
	BeforeEach(func(ctx context.Context) { namespace = cluster.Namespace(ctx, "run-") })

	// The kernel keeps the file locked for as long as a command runs.
	It("never overlaps one whose keys cross its own, and both end", func(ctx context.Context) {
		const rounds = 4
		witness := filepath.Join(home(), "witness")
		script := `exec 9>>"$1.lock"; flock -n 9 || echo overlap >>"$1"; echo ran >>"$1"; sleep 0.05`
		var runs sync.WaitGroup
		for _, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
			folder := home()
			runs.Go(func() {
				defer GinkgoRecover()
				for range rounds {
					run := command(ctx, folder, slices.Concat([]string{"run", "-n", namespace}, personOf(ann).identity, keys, []string{"--", "sh", "-c", script, "sh", witness})...)
					Expect(finish(run, "")).To(HaveField("Status", 0))
				}
			})
		}
		runs.Wait()
		Expect(os.ReadFile(witness)).To(BeEquivalentTo(strings.Repeat("ran\n", 2*rounds)))
		Expect(stored(ctx, namespace, "a")).To(BeNil())
		Expect(stored(ctx, namespace, "b")).To(BeNil())
	})

	It("ends its command when one lock is lost, and releases the other", func(ctx context.Context) {
		ready := filepath.Join(home(), "ready")
		ended := make(chan outcome, 1)
		run := command(ctx, home(), slices.Concat([]string{"run", "a", "b", "--ttl", "1h", "-n", namespace}, personOf(ann).identity,
			[]string{"--", "sh", "-c", `echo >"$1"; exec sleep 1000`, "sh", ready})...)
		go func() {
			defer GinkgoRecover()
			ended <- finish(run, "")
		}()
		Eventually(ready).WithTimeout(timeout).Should(BeAnExistingFile())
		Expect(lockAs(ctx, chief, home(), namespace, "", "free", "a", "--yes", "--reason", "stuck")).To(HaveField("Status", 0))
		var got outcome
		Eventually(ended).WithTimeout(timeout).Should(Receive(&got))
		Expect(got).To(failWith(202, "a was lost, and the command was stopped"))
		Expect(stored(ctx, namespace, "b")).To(BeNil())
	})
})
