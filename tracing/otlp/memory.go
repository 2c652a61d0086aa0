package otlp

import sdktrace "go.opentelemetry.io/otel/sdk/trace"

// What spans take in memory at most, in bytes. The tests of this package measure it, and docs/operations.md counts with
// it.
const (
	// SpanBytes is what a span takes until it is sent.
	SpanBytes = 6 << 10
	// EncodedBytes is what a span takes besides while it is being sent.
	EncodedBytes = 8 << 10
	// CallBytes is what the span of a call takes while it waits, with a function and a trace of its caller's choice.
	CallBytes = 3 << 10
	// WaitBytes is what the span of its wait takes, at the home of the line.
	WaitBytes = 5 << 9
	// JobBytes is what both spans take of a Job that waits.
	JobBytes = 5 << 10
)

// The bounds of the SDK's queue, unless the environment says otherwise.
const (
	// DefaultQueue is how many spans wait to be sent at most.
	DefaultQueue = sdktrace.DefaultMaxQueueSize
	// DefaultBatch is how many spans are sent at once.
	DefaultBatch = sdktrace.DefaultMaxExportBatchSize
)
