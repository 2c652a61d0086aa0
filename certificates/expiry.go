package certificates

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/metric"
)

// NewExpiryMetric returns a metric of when a certificate ends, which the function tells at each scrape; zero
// for no metric. A registry takes several of them with names of their own.
func NewExpiryMetric(name string, notAfter func() time.Time) prometheus.Collector {
	return &expiryMetric{
		description: metric.CertificateExpiry.Desc(prometheus.Labels{"certificate": name}),
		notAfter:    notAfter,
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
