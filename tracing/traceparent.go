package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

const traceparentHeader = "traceparent"

// Traceparent returns the trace that ctx is part of; empty if there is none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentHeader]
}

// ContextWithTraceparent returns ctx as a part of a trace of another replica.
func ContextWithTraceparent(ctx context.Context, trace string) context.Context {
	if trace == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparentHeader: trace})
}
