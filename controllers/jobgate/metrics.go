package jobgate

import "github.com/prometheus/client_golang/prometheus"

var waitingJobs = prometheus.NewDesc("lock_operator_jobs_waiting",
	"Jobs that wait for a lock now, by namespace. Only the leader counts them.", []string{"namespace"}, nil)

// Describe implements [prometheus.Collector].
func (g *Gate) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- waitingJobs }

// Collect implements [prometheus.Collector]. A namespace without waiting Jobs has no
// series.
func (g *Gate) Collect(metrics chan<- prometheus.Metric) {
	for namespace, count := range g.waitingByNamespace() {
		metrics <- prometheus.MustNewConstMetric(waitingJobs, prometheus.GaugeValue, float64(count), namespace)
	}
}

func (g *Gate) waitingByNamespace() map[string]int64 {
	if !g.Leadership.IsLeader() {
		return nil // What is left in the slots is of the time when it did.
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := map[string]int64{}
	for name, slot := range g.slots {
		if waiting := slot.waiting.Load(); waiting > 0 {
			counts[name.Namespace] += waiting
		}
	}
	return counts
}
