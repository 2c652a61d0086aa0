package expiry

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

var (
	locks = metric.Locks.Desc(nil)
	lag   = metric.ReaperLag.Desc(nil)
)

// Values of the label state.
const (
	held    = "held"
	expired = "expired"
)

// storeOf returns what the informer shows, which must not be modified. A List of the cache would copy each
// lock for each scrape.
func storeOf(informer cache.Informer) (toolscache.Store, error) {
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of locks is a %T, which has no store", informer)
	}
	return shared.GetStore(), nil
}

// Describe implements [prometheus.Collector].
func (r *Reconciler) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- locks
	descriptions <- lag
}

// Collect implements [prometheus.Collector]. A namespace without locks has no series.
func (r *Reconciler) Collect(metrics chan<- prometheus.Metric) {
	if !r.Leadership.IsLeader() {
		return // The leader's are enough, and a sum over replicas must not count a lock twice.
	}
	counts, oldest := r.count()
	for of, count := range counts {
		metrics <- prometheus.MustNewConstMetric(locks, prometheus.GaugeValue, float64(count), of.namespace, of.state)
	}
	metrics <- prometheus.MustNewConstMetric(lag, prometheus.GaugeValue, oldest.Seconds())
}

type lockClass struct{ namespace, state string }

// count returns how many locks there are, and for how long the oldest of them could have been deleted.
func (r *Reconciler) count() (counts map[lockClass]int, oldest time.Duration) {
	now, grace := r.Clock.Now(), r.ClockSkewAllowance+servertime.MaxAhead(r.Clock)
	counts = map[lockClass]int{}
	for _, object := range r.store.List() {
		lock, ok := object.(*v1alpha1.Lock)
		if !ok {
			continue
		}
		state := held
		if rules.Expired(lock, now) {
			state = expired
			oldest = max(oldest, -rules.UntilReclaimable(lock, now, grace))
		}
		counts[lockClass{lock.Namespace, state}]++
	}
	return counts, oldest
}
