package otlp

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/utils/clock"
)

// lossPeriod is how often it is logged at most that spans could not be sent.
const lossPeriod = time.Minute

// lossLog logs what goes wrong with traces, once a period: a receiver can be away for long. It implements
// OpenTelemetry's ErrorHandler and is safe for concurrent use.
type lossLog struct {
	clock  clock.PassiveClock
	logger logr.Logger

	mu sync.Mutex
	// loggedAt is when the last message was logged.
	loggedAt time.Time
	// lost are the spans since then.
	lost int
}

// Handle implements OpenTelemetry's ErrorHandler.
func (l *lossLog) Handle(err error) { l.record(0, err) }

func (l *lossLog) record(spans int, err error) {
	l.mu.Lock()
	l.lost += spans
	now := l.clock.Now()
	isDue := l.loggedAt.IsZero() || now.Sub(l.loggedAt) >= lossPeriod
	lost := l.lost
	if isDue {
		l.loggedAt, l.lost = now, 0
	}
	l.mu.Unlock()
	if isDue {
		l.logger.Error(err, "Traces could not be sent", "lostSpans", lost)
	}
}

// sending is an exporter whose failures are logged.
type sending struct {
	sdktrace.SpanExporter

	log *lossLog
}

// ExportSpans implements the SDK's SpanExporter. It returns no error: those are logged here, with the number
// of spans.
func (s *sending) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := s.SpanExporter.ExportSpans(ctx, spans); err != nil {
		s.log.record(len(spans), err)
	}
	return nil
}
