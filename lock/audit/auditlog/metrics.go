package auditlog

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/audit"
)

// metrics count all facts, whether or not their records are written. Label values never come from
// requests.
type metrics struct {
	events  *prometheus.CounterVec
	held    *prometheus.HistogramVec
	dropped *prometheus.CounterVec
	failing prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer, waitingRecords func() int) (*metrics, error) {
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
			Help: "Audit records that were not written, by cause and by the class of their actors. The records with the event Omitted say whose they were. Every cause except too_many_refusals is a gap in the audit.",
		}, []string{"cause", "class"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lock_operator_audit_failing",
			Help: "1 while audit records cannot be written, else 0. They are buffered meanwhile.",
		}),
	}
	for _, cause := range []audit.Cause{audit.BufferFull, audit.NotWritten, audit.TooManyRefusals, audit.Closed, audit.NotMade} {
		for _, class := range classes {
			m.dropped.WithLabelValues(string(cause), string(class))
		}
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lock_operator_audit_buffered_records",
		Help: fmt.Sprintf("Audit records that wait to be written, of at most %d.", buffered),
	}, func() float64 { return float64(waitingRecords()) })
	for _, collector := range []prometheus.Collector{m.events, m.held, m.dropped, m.failing, waiting} {
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

func (m *metrics) drop(cause audit.Cause, of class) {
	m.dropped.WithLabelValues(string(cause), string(of)).Inc()
}
