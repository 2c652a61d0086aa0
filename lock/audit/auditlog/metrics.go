package auditlog

import (
	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/metric"
)

// metrics count all facts, whether or not their records are written, and no dry runs. Label values never
// come from requests.
type metrics struct {
	events  *prometheus.CounterVec
	late    *prometheus.CounterVec
	held    *prometheus.HistogramVec
	dropped *prometheus.CounterVec
	failing prometheus.Gauge
}

// counted are the events that begin, prolong or end grants, with their reasons. Alerts count them.
var counted = map[audit.Event][]audit.Reason{
	audit.Granted: {""}, audit.TakenOver: {""}, audit.HandedOn: {""}, audit.Renewed: {""},
	audit.Released:      {audit.ByOwner, audit.PassedOn, audit.Abandoned, audit.HolderGone, audit.NamespaceDeleted, audit.OwnersGone},
	audit.Expired:       {audit.Reaped, audit.Replaced},
	audit.ForceReleased: {audit.ByForce},
}

func newMetrics(registerer prometheus.Registerer, vias []audit.Via, waitingRecords func() int) (*metrics, error) {
	m := &metrics{
		events:  metric.LockEvents.CounterVec(),
		late:    metric.LateRenewals.CounterVec(),
		held:    metric.HeldSeconds.HistogramVec(nil),
		dropped: metric.AuditDropped.CounterVec(),
		failing: metric.AuditFailing.Gauge(),
	}
	for _, cause := range []audit.Cause{audit.BufferFull, audit.NotWritten, audit.TooManyRefusals, audit.Closed} {
		m.dropped.WithLabelValues(string(cause))
	}
	// A series that begins with the first facts hides them: Prometheus counts only what is added to it.
	for _, via := range vias {
		m.late.WithLabelValues(string(via))
		for event, reasons := range counted {
			for _, reason := range reasons {
				m.events.WithLabelValues(string(event), string(reason), string(via))
			}
		}
	}
	return m, metric.Register(registerer, m.events, m.late, m.held, m.dropped, m.failing,
		metric.AuditBuffered.GaugeFunc(nil, func() float64 { return float64(waitingRecords()) }),
		metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "audit_buffer"}, func() float64 { return float64(waitingRecords()) / buffered }))
}

func (m *metrics) observe(record *audit.Record) {
	if record.DryRun {
		return
	}
	m.events.WithLabelValues(string(record.Event), string(record.Reason), string(record.Via)).Inc()
	if record.IsLate {
		m.late.WithLabelValues(string(record.Via)).Inc()
	}
	if record.HeldSeconds != nil {
		m.held.WithLabelValues(string(record.Reason)).Observe(*record.HeldSeconds)
	}
}

func (m *metrics) drop(cause audit.Cause) { m.dropped.WithLabelValues(string(cause)).Inc() }
