package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// errorLogBurst is how many lines of one kind are logged at once, and errorLogPeriod how long another
	// one then takes: any client can cause them, with each connection.
	errorLogBurst  = 10
	errorLogPeriod = 10 * time.Second
	// kindWords is how many words of a line tell its kind. All are those of net/http, and those of clients
	// come after them, as in "http: TLS handshake error from 192.0.2.1:1000: EOF".
	kindWords = 3
	// maxErrorKinds bounds the memory. What is beyond counts as one kind.
	maxErrorKinds = 32
)

// errorLog logs what a [http.Server] says of its connections, at a bounded rate for each kind of lines, so
// that those which clients cause hide no others. It is safe for concurrent use.
type errorLog struct {
	logger logr.Logger
	clock  clock.PassiveClock

	mu    sync.Mutex
	kinds map[string]*errorKind
}

// errorKind are the lines of one kind.
type errorKind struct {
	limit *rate.Limiter
	// omitted is how many were left out since the last one that was logged.
	omitted int
}

func newErrorLog(logger logr.Logger, now clock.PassiveClock) *errorLog {
	return &errorLog{logger: logger, clock: now, kinds: map[string]*errorKind{}}
}

// NewErrorLog returns a handler for the ErrorLog of a [http.Server] of any kind. Clients cause only so many
// lines of it: at most ten of one kind at once, and one in ten seconds after that, which tells how many were
// omitted.
func NewErrorLog(logger logr.Logger, now clock.PassiveClock) slog.Handler {
	return newErrorLog(logger, now)
}

// Enabled implements [slog.Handler].
func (l *errorLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (l *errorLog) Handle(_ context.Context, record slog.Record) error {
	if omitted, isDue := l.admit(kindOf(record.Message)); isDue {
		l.log(record.Message, omitted)
	}
	return nil
}

// WithAttrs implements [slog.Handler]. A [http.Server] has no attributes.
func (l *errorLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements [slog.Handler].
func (l *errorLog) WithGroup(string) slog.Handler { return l }

// admit reports whether a line of the kind is logged, and how many were not since the last one. It counts
// those that are not.
func (l *errorLog) admit(kind string) (omitted int, isDue bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.kinds[kind]
	if of == nil && len(l.kinds) >= maxErrorKinds {
		kind = ""
		of = l.kinds[kind]
	}
	if of == nil {
		of = &errorKind{limit: rate.NewLimiter(rate.Every(errorLogPeriod), errorLogBurst)}
		l.kinds[kind] = of
	}
	if !of.limit.AllowN(l.clock.Now(), 1) {
		of.omitted++
		return 0, false
	}
	omitted, of.omitted = of.omitted, 0
	return omitted, true
}

// finish logs how many lines were left out and are not in the log yet.
func (l *errorLog) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, of := range l.kinds {
		if of.omitted > 0 {
			l.log(kind, of.omitted)
			of.omitted = 0
		}
	}
}

func (l *errorLog) log(line string, omitted int) {
	if omitted == 0 {
		l.logger.Info(line)
		return
	}
	l.logger.Info(line, "omitted", omitted)
}

// kindOf returns the words of a line that all lines of its kind have in common.
func kindOf(line string) string {
	words := strings.SplitN(line, " ", kindWords+1)
	return strings.Join(words[:min(kindWords, len(words))], " ")
}
