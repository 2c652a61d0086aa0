package otlp

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
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
	// lost are the spans since then, and last is why the last were.
	lost int
	last error
}

// Handle implements OpenTelemetry's ErrorHandler.
func (l *lossLog) Handle(err error) { l.record(0, err) }

func (l *lossLog) record(spans int, err error) {
	l.mu.Lock()
	l.lost += spans
	l.last = err
	now := l.clock.Now()
	isDue := l.loggedAt.IsZero() || now.Sub(l.loggedAt) >= lossPeriod
	if isDue {
		l.loggedAt = now
	}
	l.mu.Unlock()
	if isDue {
		l.log()
	}
}

// end logs the spans that have been lost since the last message.
func (l *lossLog) end() {
	l.mu.Lock()
	hasLost := l.lost > 0
	l.mu.Unlock()
	if hasLost {
		l.log()
	}
}

func (l *lossLog) log() {
	l.mu.Lock()
	lost, err := l.lost, l.last
	l.lost = 0
	l.mu.Unlock()
	l.logger.Error(err, "Traces could not be sent", "lostSpans", lost)
}
