package expiry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	for _, lock := range r.all() {
		state := held
		if rules.Expired(lock, now) {
			state = expired
			oldest = max(oldest, -rules.UntilReclaimable(lock, now, grace))
		}
		counts[lockClass{lock.Namespace, state}]++
	}
	return counts, oldest
}
