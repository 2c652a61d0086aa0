package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"forrst.dev/lock-operator/tracing"
)

// ids generates the ids of traces and spans: random ones, unless the caller has chosen that of a trace.
type ids struct{}

// NewIDs implements the SDK's IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, isChosen := tracing.ChosenTraceID(ctx)
	for !isChosen || !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64()) //nolint:gosec // ids are no secrets
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // ids are no secrets
		isChosen = true
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements the SDK's IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // ids are no secrets
	}
	return id
}
