package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/certificates/certfile"
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
func newMetrics(registerer prometheus.Registerer, limiter *limits.Limiter, open *connections, served *certfile.Files) (*metrics, error) {
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
	bodies := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_body_bytes",
		Help: "Bytes that are kept now of requests and of the answers of routed functions.",
	}, func() float64 { return float64(limiter.BodyBytes()) })
	connected := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_facade_connections",
		Help: "Connections that are open now.",
	}, func() float64 { return float64(open.open()) })
	ended := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "lock_operator_facade_ended_requests_total",
		Help: "Requests without an authenticated caller that were ended because others needed their places.",
	}, func() float64 { return float64(open.requests.endedForOthers()) })
	collectors := []prometheus.Collector{m.calls, m.duration, m.refused, running, waiting, bodies, connected, ended}
	for reason := range closeReasons {
		collectors = append(collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "lock_operator_facade_closed_connections_total",
			Help:        "Connections that were closed before their time, by reason: too many of one address, no authenticated call, or idle.",
			ConstLabels: prometheus.Labels{"reason": reason.String()},
		}, func() float64 { return float64(open.closedFor(reason)) }))
	}
	for _, limit := range totalsOf(limiter, open) {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "lock_operator_facade_saturated_seconds",
			Help:        "For how long a limit of all callers together has been used up, by limit; 0 if it is not.",
			ConstLabels: prometheus.Labels{"limit": limit.name},
		}, func() float64 { return limit.isFull().Seconds() }))
	}
	if served != nil {
		collectors = append(collectors, certificates.NewExpiryMetric("facade", served.NotAfter))
	}
	for _, collector := range collectors {
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
