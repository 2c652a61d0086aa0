// Package auditlog has the sinks of audit records: [Log] writes them as lines of JSON and counts
// them in metrics, and [WithEvents] makes Events of forced releases.
package auditlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/audit"
)

const (
	// buffered is how many records can wait to be written: about a second of records of a fully
	// loaded replica.
	buffered = 8192
	// batchBytes is the size at which a batch is written.
	batchBytes = 64 << 10
	// refusalsPerSecond and refusalBurst bound the records of refusals, which any user with write
	// access to locks can cause, and by themselves those of refused writes, which any user with write
	// access to guarded objects can: neither kind keeps the other out. The metrics count all.
	refusalsPerSecond, refusalBurst = 20, 200
)

// Options configures a [Log].
type Options struct {
	// Writer takes the lines. Nil means that records are only counted.
	Writer io.Writer
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer
	// Clock bounds the rate of refusals. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger reports lines that cannot be written. Zero discards.
	Logger logr.Logger
}

// Log is an [audit.Sink] that writes each record as one line of JSON, from its own goroutine and
// in the order of arrival. It drops and counts records that arrive too fast or cannot be written.
// Safe for concurrent use.
type Log struct {
	writer  io.Writer
	metrics *metrics
	// refusals bounds the events that it has.
	refusals map[audit.Event]flowcontrol.PassiveRateLimiter
	log      logr.Logger

	// mu guards closing the channel.
	mu       sync.RWMutex
	isClosed bool
	records  chan audit.Record
	// written is closed when the goroutine has ended.
	written chan struct{}

	// Only the goroutine uses the fields below.

	batch bytes.Buffer
	lines int
	// isFailing says that the last batch could not be written, isTorn that only a part of it was.
	isFailing, isTorn bool
}

// New returns a log that is ready for use. The caller must close it.
func New(options Options) (*Log, error) {
	if options.Registerer == nil {
		return nil, errors.New("audit log: Registerer is required")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	metrics, err := newMetrics(options.Registerer)
	if err != nil {
		return nil, err
	}
	log := &Log{
		writer:   options.Writer,
		metrics:  metrics,
		refusals: map[audit.Event]flowcontrol.PassiveRateLimiter{},
		log:      options.Logger,
		records:  make(chan audit.Record, buffered),
		written:  make(chan struct{}),
	}
	for _, event := range []audit.Event{audit.Refused, audit.WriteRefused} {
		log.refusals[event] = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(refusalsPerSecond, refusalBurst, options.Clock)
	}
	go log.run()
	return log, nil
}

// Record implements [audit.Sink].
func (l *Log) Record(record audit.Record) {
	l.metrics.observe(&record)
	if l.writer == nil {
		return
	}
	if limit, isBounded := l.refusals[record.Event]; isBounded && !limit.TryAccept() {
		l.metrics.drop(tooManyRefusals, 1)
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.isClosed {
		l.metrics.drop(closed, 1)
		return
	}
	select {
	case l.records <- record:
	default:
		l.metrics.drop(bufferFull, 1)
	}
}

// Lost implements [audit.Sink].
func (l *Log) Lost() { l.metrics.drop(notMade, 1) }

// Close writes the waiting records. It returns when that is done or ctx has ended; later records
// are dropped. Closing twice is no error.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.isClosed {
		l.isClosed = true
		close(l.records)
	}
	l.mu.Unlock()
	select {
	case <-l.written:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write the last audit records: %w", ctx.Err())
	}
}

// run writes a batch when no record waits or the batch is full.
func (l *Log) run() {
	defer close(l.written)
	encoder := json.NewEncoder(&l.batch)
	encoder.SetEscapeHTML(false)
	for record := range l.records {
		// Encoding a record cannot fail: it holds no type that could.
		if err := encoder.Encode(&record); err == nil {
			l.lines++
		}
		if len(l.records) == 0 || l.batch.Len() >= batchBytes {
			l.flush()
		}
	}
}

func (l *Log) flush() {
	text := l.batch.Bytes()
	if l.isTorn {
		text = append([]byte{'\n'}, text...)
	}
	count, err := l.writer.Write(text)
	if err == nil {
		l.isTorn = false
	} else {
		l.isTorn = l.isTorn && count == 0 || count > 0
		l.metrics.drop(notWritten, l.lines)
	}
	switch {
	case err != nil && !l.isFailing:
		l.log.Error(err, "Could not write audit records; they are dropped until a write succeeds")
	case err == nil && l.isFailing:
		l.log.Info("Audit records are written again")
	}
	l.isFailing = err != nil
	l.batch.Reset()
	l.lines = 0
}
