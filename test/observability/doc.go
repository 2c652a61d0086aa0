// Package observability tests what observes the operator: the alert rules, the dashboard and the configuration
// of kube-state-metrics in config/observability, and docs/alerts.md. Its tests need Prometheus and promtool;
// "make observe-test" unpacks them.
package observability
