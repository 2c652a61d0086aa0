package jobgate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/metric"
)

var (
	waitingJobs = metric.JobsWaiting.Desc(nil)
	oldestWait  = metric.JobsOldestWait.Desc(nil)
)

// waitingCount is how many Jobs wait for a lock, or for the locks of a namespace.
type waitingCount struct {
	jobs int
	// oldest is since when the one that waits longest has waited.
	oldest time.Time
}

func (c waitingCount) plus(other waitingCount) waitingCount {
	if c.jobs == 0 || other.jobs > 0 && other.oldest.Before(c.oldest) {
		c.oldest = other.oldest
	}
	c.jobs += other.jobs
	return c
}

// Describe implements [prometheus.Collector].
func (r *Reconciler) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- waitingJobs
	descriptions <- oldestWait
}

// Collect implements [prometheus.Collector]. A namespace without waiting Jobs has no
// series.
func (r *Reconciler) Collect(metrics chan<- prometheus.Metric) {
	now := r.Clock.Now()
	for namespace, count := range r.waitingByNamespace() {
		metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(count.jobs), namespace)
		metrics <- prometheus.MustNewConstMetric(oldestWait, prometheus.GaugeValue, max(0, now.Sub(count.oldest).Seconds()), namespace)
	}
}

func (r *Reconciler) waitingByNamespace() map[string]waitingCount {
	if !r.Leadership.IsLeader() {
		return nil // The states date from before the leadership was lost.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]waitingCount{}
	for name, state := range r.states {
		if waiting := state.waiting.Load(); waiting != nil && waiting.jobs > 0 {
			counts[name.Namespace] = counts[name.Namespace].plus(*waiting)
		}
	}
	return counts
}
