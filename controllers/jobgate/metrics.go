package jobgate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/metric"
)

var (
	waitingJobs = metric.JobsWaiting.Desc(nil)
	oldestWait  = metric.JobsOldestWait.Desc(nil)
	runningJobs = metric.JobsRunning.Desc(nil)
)

// jobCount is how many Jobs wait for a lock, or for the locks of a namespace, and how many run under them.
type jobCount struct {
	waiting int
	// oldest is since when the one that waits longest has waited.
	oldest time.Time
	// running counts those that may have pods.
	running int
}

func (c jobCount) plus(other jobCount) jobCount {
	if c.waiting == 0 || other.waiting > 0 && other.oldest.Before(c.oldest) {
		c.oldest = other.oldest
	}
	c.waiting += other.waiting
	c.running += other.running
	return c
}

// Describe implements [prometheus.Collector].
func (r *Reconciler) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- waitingJobs
	descriptions <- oldestWait
	descriptions <- runningJobs
}

// Collect implements [prometheus.Collector]. A namespace without such Jobs has no
// series.
func (r *Reconciler) Collect(metrics chan<- prometheus.Metric) {
	now := r.Clock.Now()
	for namespace, count := range r.countByNamespace() {
		if count.waiting > 0 {
			metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(count.waiting), namespace)
			metrics <- prometheus.MustNewConstMetric(oldestWait, prometheus.GaugeValue, max(0, now.Sub(count.oldest).Seconds()), namespace)
		}
		if count.running > 0 {
			metrics <- prometheus.MustNewConstMetric(runningJobs, prometheus.GaugeValue, float64(count.running), namespace)
		}
	}
}

func (r *Reconciler) countByNamespace() map[string]jobCount {
	if !r.Leadership.IsLeader() {
		return nil // The states date from before the leadership was lost.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]jobCount{}
	for name, state := range r.states {
		if count := state.count.Load(); count != nil {
			counts[name.Namespace] = counts[name.Namespace].plus(*count)
		}
	}
	return counts
}
