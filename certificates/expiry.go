package certificates

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewExpiryMetric returns a metric of when a certificate ends, which the function tells at each scrape; zero
// for no metric. A registry takes several of them with names of their own.
func NewExpiryMetric(name string, notAfter func() time.Time) prometheus.Collector {
	return &expiryMetric{
		description: prometheus.NewDesc("lock_operator_certificate_expiry_timestamp_seconds",
			"When the certificate ends that this process serves, or the authority that it signs certificates with, in seconds since 1970.",
			nil, prometheus.Labels{"certificate": name}),
		notAfter: notAfter,
	}
}

type expiryMetric struct {
	description *prometheus.Desc
	notAfter    func() time.Time
}

// Describe implements [prometheus.Collector].
func (m *expiryMetric) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- m.description }

// Collect implements [prometheus.Collector].
func (m *expiryMetric) Collect(metrics chan<- prometheus.Metric) {
	if notAfter := m.notAfter(); !notAfter.IsZero() {
		metrics <- prometheus.MustNewConstMetric(m.description, prometheus.GaugeValue, float64(notAfter.Unix()))
	}
}
