// Package otlp sends traces by the OpenTelemetry protocol. The standard environment variables configure it
// (docs/tracing.md); without an endpoint there it starts nothing.
package otlp
