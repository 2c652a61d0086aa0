package auditlog

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/audit"
)

// Why a record is dropped.
const (
	bufferFull      = "buffer_full"
	notWritten      = "not_written"
	tooManyRefusals = "too_many_refusals"
	closed          = "closed"
	notMade         = "not_made"
)

// metrics count all facts, whether or not their records are written. Label values never come from
// requests.
type metrics struct {
	events  *prometheus.CounterVec
	held    *prometheus.HistogramVec
	dropped *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lock_operator_lock_events_total",
			Help: "Facts about locks, as in the audit, by event, by the reason of an end or a refusal, and by the path through which they happened.",
		}, []string{"event", "reason", "via"}),
		held: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lock_operator_lock_held_seconds",
			Help: "How long locks were held, by the reason of their end.",
			// From a millisecond to about 18 hours.
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 14),
		}, []string{"reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lock_operator_audit_records_dropped_total",
			Help: "Audit records that were not written, by cause. Every cause except too_many_refusals is a gap in the audit.",
		}, []string{"cause"}),
	}
	for _, cause := range []string{bufferFull, notWritten, tooManyRefusals, closed, notMade} {
		m.dropped.WithLabelValues(cause)
	}
	for _, collector := range []prometheus.Collector{m.events, m.held, m.dropped} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("audit log: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(record *audit.Record) {
	m.events.WithLabelValues(string(record.Event), string(record.Reason), string(record.Via)).Inc()
	if record.HeldSeconds != nil {
		m.held.WithLabelValues(string(record.Reason)).Observe(*record.HeldSeconds)
	}
}

func (m *metrics) drop(cause string, count int) {
	m.dropped.WithLabelValues(cause).Add(float64(count))
}
