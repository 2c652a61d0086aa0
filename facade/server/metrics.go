package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/facade/limits"
)

// durationBuckets reach from a ping to the longest wait by default and beyond.
var durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// metrics are about the calls of all doors.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

// newMetrics registers the metrics unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, limiter *limits.Limiter) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lock_operator_facade_calls_total",
			Help: "Answered calls by door, class of function and code of the first error, or OK.",
		}, []string{"door", "function", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lock_operator_facade_call_duration_seconds",
			Help:    "Time from the receipt of a call to its answer, waiting for locks included, by door and class of function.",
			Buckets: durationBuckets,
		}, []string{"door", "function"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lock_operator_facade_refused_calls_total",
			Help: "Calls that were refused for a limit, by door and limit.",
		}, []string{"door", "limit"}),
	}
	if registerer == nil {
		return m, nil
	}
	// Calls of all doors count against the same limits, so they are not told apart.
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_running_calls",
		Help: "Calls that run now.",
	}, func() float64 { return float64(limiter.Counts().Running) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_waiting_calls",
		Help: "Calls that wait for a lock now.",
	}, func() float64 { return float64(limiter.Counts().Waiting) })
	for _, collector := range []prometheus.Collector{m.calls, m.duration, m.refused, running, waiting} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("facade: register metrics: %w", err)
		}
	}
	return m, nil
}

// Metrics counts the calls of one door. It is safe for concurrent use.
type Metrics struct {
	door    string
	metrics *metrics
}

// Metrics returns the metrics with the door's name as label.
func (s *Server) Metrics(door string) Metrics { return Metrics{door, s.metrics} }

// Observe counts one answer. Function and code must each be one of a bounded number of
// texts: callers must not choose how many series there are.
func (m Metrics) Observe(function, code string, took time.Duration) {
	m.metrics.calls.WithLabelValues(m.door, function, code).Inc()
	m.metrics.duration.WithLabelValues(m.door, function).Observe(took.Seconds())
}

// CountRefusal counts a call that was refused for a limit.
func (m Metrics) CountRefusal(refusal *limits.Error) {
	m.metrics.refused.WithLabelValues(m.door, refusal.Limit).Inc()
}
