package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

var _ = Describe("A lock taken over HTTP", func() {
	It("is seen by kubectl, excludes others, and is released once", Label(installed), func(ctx context.Context) {
		acquired := shared.acquire(ctx, "billing:report", "", 300)
		Expect(acquired).To(failWith(400, "INVALID_ARGUMENTS"), "an empty owner is refused")

		acquired = shared.acquire(ctx, "billing:report", "job-17", 300)
		Expect(acquired).To(beAcquired())
		Expect(acquired.Extensions[0].Data).To(And(HaveLen(5), HaveKeyWithValue("key", "billing:report"),
			HaveKeyWithValue("owner", "job-17"), HaveKeyWithValue("scope", "global"), HaveKey("expires_at")))

		table, err := shared.kubectl.Run(ctx, "", "get", "locks", "billing--report")
		Expect(err).NotTo(HaveOccurred())
		lines := strings.Split(strings.TrimSpace(table), "\n")
		Expect(strings.Fields(lines[0])).To(Equal([]string{"NAME", "KEY", "HOLDER", "EXPIRES", "AGE"}))
		Expect(strings.Fields(lines[1])[:3]).To(Equal([]string{"billing--report", "billing:report", shared.holder}))
		Expect(table).NotTo(ContainSubstring("job-17"))
		wide, err := shared.kubectl.Run(ctx, "", "get", "lk", "billing--report", "-o", "wide")
		Expect(err).NotTo(HaveOccurred())
		header, row, _ := strings.Cut(strings.TrimSpace(wide), "\n")
		Expect(strings.Fields(header)).To(Equal([]string{"NAME", "KEY", "HOLDER", "EXPIRES", "AGE",
			"SCOPE", "FUNCTION", "OBJECT-KIND", "OBJECT", "REASON", "TOKEN"}))
		Expect(row).To(And(ContainSubstring("Global"), Not(ContainSubstring("job-17"))))

		Expect(shared.acquire(ctx, "billing:report", "job-18", 300)).To(failWith(423, "LOCK_ACQUISITION_FAILED"))

		key := map[string]any{"key": "lock:billing:report"}
		Expect(shared.call(ctx, "status", key).Result).To(And(HaveLen(6), HaveKeyWithValue("locked", true),
			HaveKeyWithValue("owner", "job-17"), HaveKeyWithValue("ttl_remaining", And(BeNumerically(">", 200), BeNumerically("<=", 300)))))

		release := map[string]any{"key": "lock:billing:report", "owner": "job-18"}
		Expect(shared.call(ctx, "release", release)).To(failWith(403, "LOCK_OWNERSHIP_MISMATCH"))
		release["owner"] = "job-17"
		Expect(shared.call(ctx, "release", release)).To(And(HaveField("Status", 200),
			HaveField("Result", Equal(map[string]any{"released": true, "key": "lock:billing:report"}))))
		Expect(shared.call(ctx, "release", release)).To(failWith(404, "LOCK_NOT_FOUND"))
		Expect(shared.call(ctx, "status", key).Result).To(Equal(map[string]any{"key": "lock:billing:report", "locked": false}))
	})

	// A page can give its own name the address of this machine.
	It("is not shown under the name of another host, since callers are not authenticated", func(ctx context.Context) {
		for host, status := range map[string]int{"pages.example:8080": http.StatusMisdirectedRequest, "localhost:8080": http.StatusOK} {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, shared.facade+"/v1/namespaces/default/locks", http.NoBody)
			Expect(err).NotTo(HaveOccurred())
			request.Host = host
			response, err := http.DefaultClient.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(status), host)
		}
	})

	It("can be released by force", Label(installed), func(ctx context.Context) {
		Expect(shared.acquire(ctx, "forced", "job-17", 300)).To(beAcquired())
		key := map[string]any{"key": "forrst_lock:forced", "reason": "the test is over"}
		Expect(shared.call(ctx, "force-release", key).Result).To(Equal(map[string]any{"released": true, "key": "forrst_lock:forced", "forced": true}))
		Expect(shared.call(ctx, "force-release", key)).To(failWith(404, "LOCK_NOT_FOUND"))
	})

	It("excludes a manifest of the same key and is excluded by one", Label(installed), func(ctx context.Context) {
		Expect(shared.acquire(ctx, "billing:monthly-close", "job-17", 300)).To(beAcquired())
		samples := filepath.Join(root, "config", "samples")
		_, err := shared.kubectl.Run(ctx, "", "apply", "-f", filepath.Join(samples, "lock.yaml"))
		Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("is held by %q until", shared.holder))))
		Expect(shared.call(ctx, "release", map[string]any{"key": "billing:monthly-close", "owner": "job-17"}).Status).To(Equal(200))

		output, err := shared.kubectl.Run(ctx, "", "apply", "-f", samples)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(output, "created")).To(Equal(2), output)
		DeferCleanup(func(ctx context.Context) {
			_, err := shared.kubectl.Run(ctx, "", "delete", "-f", samples)
			Expect(err).NotTo(HaveOccurred())
		})
		Expect(shared.acquire(ctx, "billing:monthly-close", "job-17", 300)).To(failWith(423, "LOCK_ACQUISITION_FAILED"))
		output, err = shared.kubectl.Run(ctx, "", "apply", "-f", samples)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(output, "unchanged")).To(Equal(2), output)
	})

	It("looks as docs/getting-started.md shows it", Label(installed), func(ctx context.Context) {
		page, err := os.ReadFile(filepath.Join(root, "docs", "getting-started.md"))
		Expect(err).NotTo(HaveOccurred())
		requireFirstLock(ctx, page)
		shared.applyAndDelete(ctx, page)
	})

	It("looks as docs/forrst.md shows it", Label(installed), func(ctx context.Context) {
		page, err := os.ReadFile(filepath.Join(root, "docs", "forrst.md"))
		Expect(err).NotTo(HaveOccurred())
		bodies := regexp.MustCompile(`(?s)-d '(\{\n.*?\n\})'`).FindAllStringSubmatch(string(page), -1)
		Expect(bodies).To(HaveLen(2), "the page shows an acquire and a release")

		acquired := shared.post(ctx, bodies[0][1])
		Expect(acquired).To(beAcquired())
		Expect(shared.post(ctx, bodies[0][1])).To(failWith(423, "LOCK_ACQUISITION_FAILED"))
		owner, ok := acquired.Extensions[0].Data["owner"].(string)
		Expect(ok).To(BeTrue())
		Expect(bodies[1][1]).To(ContainSubstring("550e8400-e29b-41d4-a716-446655440000"))
		release := strings.ReplaceAll(bodies[1][1], "550e8400-e29b-41d4-a716-446655440000", owner)
		Expect(shared.post(ctx, release)).To(And(HaveField("Status", 200), HaveField("Result", HaveKeyWithValue("released", true))))
	})

	It("answers as docs/rest.md shows it, command by command", Label(installed), func(ctx context.Context) {
		page, err := os.ReadFile(filepath.Join(root, "docs", "rest.md"))
		Expect(err).NotTo(HaveOccurred())
		steps := regexp.MustCompile(`\$ curl -i ?(?:-X (\w+))? ?(?:--json '(\{.*?\})')? ?(?:-H "X-Lock-Token: (\S+)")? ?http://127\.0\.0\.1:8080(/v1/\S+:feature-y)\nHTTP/1\.1 (\d+) `).FindAllStringSubmatch(string(page), -1)
		Expect(steps).To(HaveLen(strings.Count(string(page), "locks/flag:feature-y\n")))
		token, statuses := "", []string{}
		for _, step := range steps {
			method, body, path, status := step[1], step[2], step[4], step[5]
			if method == "" { // As curl chooses it.
				method = map[bool]string{true: http.MethodGet, false: http.MethodPost}[body == ""]
			}
			got := shared.rest(ctx, method, path, body, strings.ReplaceAll(step[3], "$LOCK_TOKEN", token))
			Expect(strconv.Itoa(got.Status)).To(Equal(status), "%s %s", method, path)
			statuses = append(statuses, status)
			token = cmp.Or(got.Token, token)
		}
		Expect(statuses).To(Equal([]string{"201", "423", "200", "200", "403", "204", "410"}))
	})

	It("looks as the README shows it", Label(installed), func(ctx context.Context) {
		readme, err := os.ReadFile(filepath.Join(root, "README.md"))
		Expect(err).NotTo(HaveOccurred())
		requireFirstLock(ctx, readme)
		shared.applyAndDelete(ctx, readme)
	})
})

// firstLock is how a page takes a lock by plain HTTP and releases it.
var firstLock = regexp.MustCompile(`(?s)\nLOCK=http://127\.0\.0\.1:8080(/v1/\S+)\n` +
	`LOCK_TOKEN="\$\(curl -sS "\$LOCK" -H 'Content-Type: application/json' -d '(\{[^']*\})' \|\n {2}sed 's/(\S+)/\\1/'\)"(?:\n.*)?` +
	`\ncurl [^\n]*"\$LOCK" -X DELETE -H "X-Lock-Token: \$LOCK_TOKEN"\n`)

// requireFirstLock takes the lock of a page as the page does.
func requireFirstLock(ctx context.Context, page []byte) {
	GinkgoHelper()
	shown := firstLock.FindSubmatch(page)
	Expect(shown).NotTo(BeNil(), "the page shows an acquire and a release")
	acquired := shared.rest(ctx, http.MethodPost, string(shown[1]), string(shown[2]), "")
	Expect(acquired.Status).To(Equal(http.StatusCreated))
	// sed's \( and \) are the parentheses of a group in Go.
	token := regexp.MustCompile(strings.NewReplacer(`\(`, `(`, `\)`, `)`).Replace(string(shown[3])))
	Expect(strings.TrimSpace(token.ReplaceAllString(string(acquired.Body), "$1"))).To(Equal(acquired.Token))
	Expect(shared.rest(ctx, http.MethodDelete, string(shown[1]), "", acquired.Token).Status).To(Equal(http.StatusNoContent))
}

// applyAndDelete applies the Lock manifest that a page shows, and deletes it again.
func (c *cluster) applyAndDelete(ctx context.Context, page []byte) {
	GinkgoHelper()
	manifest := regexp.MustCompile("(?s)```yaml\n(\\{?apiVersion.*?)```").FindSubmatch(page)
	Expect(manifest).NotTo(BeNil())
	for _, command := range []string{"apply", "delete"} {
		_, err := c.kubectl.Run(ctx, string(manifest[1]), command, "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("One key that many callers want at once", Label(installed), func() {
	const rounds, racers = 50, 100

	It(fmt.Sprintf("has exactly one holder in each of %d rounds of %d creates", rounds, racers), func(ctx context.Context) {
		for round := range rounds {
			key := fmt.Sprintf("race:%d", round)
			name := v1alpha1.FullKeyOf(key).ObjectName()
			var winners sync.Map
			var won, untold atomic.Int32
			start := make(chan struct{})
			var running sync.WaitGroup
			for racer := range racers {
				owner := fmt.Sprintf("racer-%d", racer)
				running.Go(func() {
					defer GinkgoRecover()
					<-start
					hasWon, isTold := acquireAsRacer(ctx, key, owner, racer%2 == 0)
					switch {
					case hasWon:
						won.Add(1)
						winners.Store(owner, true)
					case !isTold:
						untold.Add(1)
					}
				})
			}
			close(start)
			running.Wait()
			if won.Load() == 0 && untold.Load() > 0 { // The operator ends a grant that its caller was not told of.
				Eventually(func() error {
					return admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Lock{})
				}).
					WithTimeout(time.Minute).Should(Satisfy(apierrors.IsNotFound), "round %d", round)
				continue
			}
			Expect(won.Load()).To(BeEquivalentTo(1), "round %d", round)
			var lock v1alpha1.Lock
			Expect(admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &lock)).To(Succeed())
			_, holds := winners.Load(lock.Spec.Owner)
			Expect(holds).To(BeTrue(), "%s holds the lock and was told that it does not", lock.Spec.Owner)
			Expect(testenv.RemoveLock(ctx, admin, "default", name)).To(Succeed())
		}
	})
})

// acquireAsRacer tries once, through the façade or directly, and fails the spec on
// any refusal except that another caller holds the lock. On a busy machine the API server may not answer the façade in time,
// nor the webhook the API server: isTold is false then.
func acquireAsRacer(ctx context.Context, key, owner string, overHTTP bool) (hasWon, isTold bool) {
	if overHTTP {
		got := shared.post(ctx, acquireBody(key, owner, 60, false))
		Expect(got).To(Or(beAcquired(), failWith(423, "LOCK_ACQUISITION_FAILED"), failWith(503, "UNAVAILABLE")))
		return got.Status == 200, got.Status != 503
	}
	err := admin.Create(ctx, &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Owner: owner, TTL: &v1alpha1.Duration{Duration: time.Minute}},
	})
	Expect(err == nil || apierrors.IsAlreadyExists(err) || isLate(err)).To(BeTrue(), "got %v", err)
	return err == nil, !isLate(err)
}

// isLate says whether the webhook has not answered the API server in time.
func isLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed calling webhook") &&
		(strings.Contains(err.Error(), context.DeadlineExceeded.Error()) || strings.Contains(err.Error(), "Client.Timeout exceeded"))
}

// Not of an installation: its processes each estimate the API server's time from answers that
// show whole seconds.
var _ = Describe("An expired lock", func() {
	It("is deleted beside live ones, and not before it has expired", func(ctx context.Context) { expireBeside(ctx, 10, 100) })
})

// expireBeside has locks expire beside others that are live, and returns how late each was deleted, the earliest first.
func expireBeside(ctx context.Context, samples, others int) (late []time.Duration) {
	GinkgoHelper()
	inParallel(others, func(index int) {
		Expect(shared.acquire(ctx, fmt.Sprintf("live:%d", index), "job-17", 3600)).To(beAcquired())
	})
	DeferCleanup(func(ctx context.Context) {
		inParallel(others, func(index int) {
			Expect(shared.call(ctx, "release", map[string]any{"key": fmt.Sprintf("lock:live:%d", index), "owner": "job-17"}).Status).To(Equal(200))
		})
	})
	deleted := watchDeletions(ctx)
	inParallel(samples, func(index int) {
		Expect(shared.acquire(ctx, fmt.Sprintf("short:%d", index), "job-17", 2)).To(beAcquired())
	})
	for range samples {
		var deletion deletion
		Eventually(deleted).WithTimeout(startTimeout).Should(Receive(&deletion))
		Expect(deletion.key).To(HavePrefix("short:"), "a live lock was deleted")
		late = append(late, deletion.at.Sub(deletion.expired))
	}
	slices.Sort(late)
	Expect(late[0]).To(BeNumerically(">=", 0), "deleted before it expired")
	return late
}

type deletion struct {
	key         string
	expired, at time.Time
}

// watchDeletions reports each deleted lock and when the API server said so.
func watchDeletions(ctx context.Context) <-chan deletion {
	GinkgoHelper()
	watcher, err := client.NewWithWatch(shared.config(), client.Options{Scheme: admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	changes := fixture.Watch(ctx, watcher, &v1alpha1.LockList{}, client.InNamespace("default"))
	deletions := make(chan deletion, 2000)
	go func() {
		for change := range changes {
			if lock, ok := change.Object.(*v1alpha1.Lock); ok && change.Type == "DELETED" {
				deletions <- deletion{key: lock.Spec.Key, expired: lock.Spec.ExpireTime.Time, at: time.Now()}
			}
		}
	}()
	return deletions
}

// inParallel calls do for each index, sixteen at a time.
func inParallel(count int, do func(index int)) {
	GinkgoHelper()
	var next atomic.Int32
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			defer GinkgoRecover()
			for index := int(next.Add(1)) - 1; index < count; index = int(next.Add(1)) - 1 {
				do(index)
			}
		})
	}
	workers.Wait()
}
