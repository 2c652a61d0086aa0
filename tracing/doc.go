// Package tracing makes the spans of distributed traces: of calls at the doors, of waiting callers and of
// requests to the API server (docs/tracing.md). It knows the interfaces of OpenTelemetry only; package otlp
// sends what it makes.
//
// No span, event or attribute has an owner token, a lock token or a bearer token.
package tracing
