package holders_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

// renewedCount is how many locks the operator renews, and their ttl. RENEWED=10000 is the full measurement.
func renewedCount() (count int, ttl time.Duration) {
	GinkgoHelper()
	text, isFull := os.LookupEnv("RENEWED")
	if !isFull {
		return 40, v1alpha1.MinOperatorRenewalTTL
	}
	count, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred())
	return count, 5 * time.Minute
}

// renewals are what a watch shows of the locks of a namespace.
type renewals struct {
	mu sync.Mutex
	// last are the newest versions, and of those which a lock is renewed again in this round.
	last    map[string]*v1alpha1.Lock
	renewed map[string]bool
	// first and latest are the stamps of the round's renewals, least is the shortest time that was left.
	first, latest time.Time
	least         time.Duration
	lapses        []string
}

// watchRenewals follows the namespace, which has so many locks, until the spec ends.
func watchRenewals(ctx context.Context, namespace string, count int) *renewals {
	GinkgoHelper()
	var list v1alpha1.LockList
	changes := fixture.Watch(ctx, admin, &list, client.InNamespace(namespace))
	Expect(list.Items).To(HaveLen(count))
	seen := &renewals{last: map[string]*v1alpha1.Lock{}}
	for i := range list.Items {
		seen.last[list.Items[i].Name] = &list.Items[i]
	}
	seen.round()
	go func() {
		for change := range changes {
			seen.show(change)
		}
	}()
	return seen
}

// round begins another round.
func (r *renewals) round() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed, r.first, r.latest, r.least = map[string]bool{}, time.Time{}, time.Time{}, time.Hour
}

func (r *renewals) show(change watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lock, isLock := change.Object.(*v1alpha1.Lock)
	if !isLock || change.Type != watch.Modified {
		r.lapses = append(r.lapses, fmt.Sprintf("%s %v", change.Type, change.Object))
		return
	}
	before := r.last[lock.Name]
	r.last[lock.Name] = lock
	left := before.Spec.ExpireTime.Sub(lock.Spec.RenewTime.Time)
	if left <= 0 || !lock.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
		r.lapses = append(r.lapses, fmt.Sprintf("%s: renewed with %s left, acquired at %s, before at %s", lock.Name, left, lock.Spec.AcquireTime, before.Spec.AcquireTime))
	}
	r.renewed[lock.Name] = true
	r.least = min(r.least, left)
	if r.first.IsZero() {
		r.first = lock.Spec.RenewTime.Time
	}
	r.latest = lock.Spec.RenewTime.Time
}

// all waits until all locks were renewed in this round, and reports how.
func (r *renewals) all(title string, ttl time.Duration) {
	GinkgoHelper()
	var count int
	Eventually(func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		count = len(r.renewed)
		return len(r.last) - count
	}).WithTimeout(2*ttl).Should(BeZero(), title)
	r.mu.Lock()
	defer r.mu.Unlock()
	Expect(r.lapses).To(BeEmpty(), title)
	AddReportEntry(title, fmt.Sprintf("%d locks of %s renewed in %s, %.0f a second, the latest with %s left", count, ttl,
		r.latest.Sub(r.first), float64(count)/r.latest.Sub(r.first).Seconds(), r.least), ReportEntryVisibilityAlways)
}

var _ = Describe("A change of the leader that renews", func() {
	It("lets no lock lapse that the operator renews", func(ctx context.Context) {
		former := &cable{}
		first, second := environment.MortalCandidate("renewals", former.connect), environment.Candidate("renewals")
		startRenewing(ctx, first, former.connect)
		Eventually(first.IsLeader).Should(BeTrue())
		startRenewing(ctx, second, func(*rest.Config) {})

		count, ttl := renewedCount()
		namespace := namespaceAllowing(ctx, "720h")
		var creating sync.WaitGroup
		const creators = 16
		for creator := range creators {
			creating.Go(func() {
				defer GinkgoRecover()
				for number := creator; number < count; number += creators {
					lock := rules.Grant(namespace, rules.Acquisition{Key: fmt.Sprintf("declared-%d", number), Owner: "repository", Holder: "alice", TTL: ttl},
						rules.DefaultLimits(), time.Now())
					lock.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
					Expect(operator.Create(ctx, lock)).To(Succeed())
				}
			})
		}
		creating.Wait()
		seen := watchRenewals(ctx, namespace, count)
		seen.all("by the first leader", ttl)

		By("cutting the leader off, which then gives up nothing")
		former.cut()
		seen.round()
		Eventually(second.IsLeader).Should(BeTrue())
		seen.all("by the next leader", ttl)
	})
})
