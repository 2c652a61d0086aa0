package jobgate

import "github.com/prometheus/client_golang/prometheus"

var waitingJobs = prometheus.NewDesc("lock_operator_jobs_waiting",
	"Jobs that wait for a lock now, by namespace. Only the leader reports it.", []string{"namespace"}, nil)

// Describe implements [prometheus.Collector].
func (r *Reconciler) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- waitingJobs }

// Collect implements [prometheus.Collector]. A namespace without waiting Jobs has no
// series.
func (r *Reconciler) Collect(metrics chan<- prometheus.Metric) {
	for namespace, count := range r.waitingByNamespace() {
		metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(count), namespace)
	}
}

func (r *Reconciler) waitingByNamespace() map[string]int64 {
	if !r.Leadership.IsLeader() {
		return nil // The states date from before the leadership was lost.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int64{}
	for name, state := range r.states {
		if waiting := state.waiting.Load(); waiting > 0 {
			counts[name.Namespace] += waiting
		}
	}
	return counts
}
