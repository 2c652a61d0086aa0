package certificates

import (
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"

	"forrst.dev/lock-operator/lock/metric"
)

// NewValidityMetrics returns metrics of when a certificate begins and ends, which the function returns at each
// scrape; nil for no metrics. A registry takes several of them with names of their own.
func NewValidityMetrics(name string, current func() *x509.Certificate) prometheus.Collector {
	labels := prometheus.Labels{"certificate": name}
	return &validityMetrics{begin: metric.CertificateNotBefore.Desc(labels), end: metric.CertificateExpiry.Desc(labels), current: current}
}

type validityMetrics struct {
	begin, end *prometheus.Desc
	current    func() *x509.Certificate
}

// Describe implements [prometheus.Collector].
func (m *validityMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- m.begin
	descriptions <- m.end
}

// Collect implements [prometheus.Collector].
func (m *validityMetrics) Collect(metrics chan<- prometheus.Metric) {
	if certificate := m.current(); certificate != nil {
		metrics <- prometheus.MustNewConstMetric(m.begin, prometheus.GaugeValue, float64(certificate.NotBefore.Unix()))
		metrics <- prometheus.MustNewConstMetric(m.end, prometheus.GaugeValue, float64(certificate.NotAfter.Unix()))
	}
}
