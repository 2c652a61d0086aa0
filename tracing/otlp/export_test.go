package otlp

import (
	"os"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/utils/clock"
)

// NewLossLog returns what logs lost spans.
func NewLossLog(clock clock.PassiveClock, logger logr.Logger) func(spans int, err error) {
	return (&lossLog{clock: clock, logger: logger}).record
}

// WithQueue is the queue of the package before the sender.
func WithQueue(sender sdktrace.SpanExporter) sdktrace.TracerProviderOption {
	log := &lossLog{clock: clock.RealClock{}}
	return sdktrace.WithSpanProcessor(newQueue(sender, boundsOf(os.Getenv), clock.RealClock{}, log))
}
