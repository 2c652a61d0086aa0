package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
	"forrst.dev/lock-operator/lock/metric"
)

// metrics are about the calls of all doors.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	closed   *prometheus.CounterVec
}

// newMetrics registers the metrics unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, s *Server) (*metrics, error) {
	limiter := s.limiter
	m := &metrics{
		calls:    metric.FacadeCalls.CounterVec(),
		duration: metric.FacadeCallDuration.HistogramVec(nil),
		refused:  metric.FacadeRefusedCalls.CounterVec(),
		closed:   metric.FacadeClosedConnections.CounterVec(),
	}
	for _, reason := range []string{listener.Evicted, listener.Refused} {
		m.closed.WithLabelValues(reason)
	}
	if registerer == nil {
		return m, nil
	}
	// Calls of all doors count against the same limits, so they are not told apart.
	collectors := []prometheus.Collector{
		m.calls, m.duration, m.refused, m.closed,
		metric.FacadeRunningCalls.GaugeFunc(nil, func() float64 { return float64(limiter.Counts().Running) }),
		metric.FacadeWaitingCalls.GaugeFunc(nil, func() float64 { return float64(limiter.Counts().Waiting) }),
		metric.FacadeBodyBytes.GaugeFunc(nil, func() float64 { return float64(limiter.BodyBytes()) }),
		metric.FacadeConnections.GaugeFunc(nil, func() float64 { return float64(s.listener.Open()) }),
		metric.FacadeEndedRequests.CounterFunc(nil, func() float64 { return float64(s.requests.endedForOthers()) }),
		metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "connections"}, s.listener.Usage),
		metric.FacadeSaturated.GaugeFunc(prometheus.Labels{"limit": "in_flight"}, func() float64 { return limiter.Saturated().Seconds() }),
	}
	if served := s.options.Certificates; served != nil {
		collectors = append(collectors, certificates.NewValidityMetrics("facade", served.Leaf))
	}
	for _, limit := range limits.Wholes {
		collectors = append(collectors, metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": limit.Name},
			func() float64 { return limiter.Usage(limit) }))
	}
	if err := metric.Register(registerer, collectors...); err != nil {
		return nil, fmt.Errorf("facade: %w", err)
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
