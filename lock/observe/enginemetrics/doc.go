// Package enginemetrics counts what an engine and its callers tell of their work, as Prometheus metrics.
package enginemetrics
