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
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/audit"
)

const (
	// buffered is how many records can wait to be written: about a second of records of a fully
	// loaded replica.
	buffered = 8192
	// batchBytes is the size at which a batch is written.
	batchBytes = 64 << 10
	// retryPause is how long the log waits after a failed write.
	retryPause = time.Second
	// summaryPeriod is how often the records that were not written are summarised.
	summaryPeriod = 10 * time.Second
)

// newline ends each line.
var newline = []byte("\n")

// roomFor returns how full the buffer may be for the record to enter it: what any user can cause at
// will must not keep out what changes locks, and nothing a forced release.
func roomFor(record *audit.Record) int {
	switch {
	case record.Event == audit.ForceReleased && !record.DryRun:
		return buffered
	case isRefusal(record.Event):
		return buffered / 2
	case record.Admitted, record.Event == audit.Renewed, record.Event == audit.WriteAdmitted:
		return buffered * 3 / 4
	default:
		return buffered * 15 / 16
	}
}

func isRefusal(event audit.Event) bool { return event == audit.Refused || event == audit.WriteRefused }

// Options configures a [Log].
type Options struct {
	// Writer takes the lines. Nil means that records are only counted.
	Writer io.Writer
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer
	// Vias are the paths of the records that are expected. Their counts begin at 0, those of other paths with
	// the first record.
	Vias []audit.Via
	// Clock bounds the rate of refusals, and times summaries and repeated writes. Nil means the real
	// clock.
	Clock clock.WithTicker
	// Logger reports lines that cannot be written. Zero discards.
	Logger logr.Logger
}

// Log is an [audit.Sink] that writes each record as one line of JSON, from its own goroutine and
// in the order of arrival. Refusals of an actor that is refused often, and records that arrive
// while the buffer is full, are counted, and summarised in records with the event [audit.Omitted].
// Lines that cannot be written are kept until they can. No call waits for it. Safe for concurrent use.
type Log struct {
	writer   io.Writer
	metrics  *metrics
	clock    clock.WithTicker
	refusals *refusals
	omitted  omissions
	log      logr.Logger

	// mu guards closing the channel.
	mu       sync.RWMutex
	isClosed bool
	records  chan audit.Record
	// closing is closed with records. written is closed when the goroutine has ended.
	closing, written chan struct{}

	// Only the goroutine uses the fields below.

	batch bytes.Buffer
	// lines is how many lines the batch has.
	lines int
	// isTorn says that the text that was written ends within a line, the rest of which was given up.
	isTorn    bool
	isFailing bool
}

// New returns a log that is ready for use. The caller must close it.
func New(options Options) (*Log, error) {
	if options.Registerer == nil {
		return nil, errors.New("audit log: Registerer is required")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	log := &Log{
		writer:   options.Writer,
		clock:    options.Clock,
		refusals: newRefusals(options.Clock),
		log:      options.Logger,
		records:  make(chan audit.Record, buffered),
		closing:  make(chan struct{}),
		written:  make(chan struct{}),
	}
	var err error
	if log.metrics, err = newMetrics(options.Registerer, options.Vias, func() int { return len(log.records) }); err != nil {
		return nil, err
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
	record.Bound()
	if isRefusal(record.Event) && !l.refusals.mayBeRecorded(&record) {
		l.omit(&record, audit.TooManyRefusals)
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.isClosed {
		l.metrics.drop(audit.Closed)
		return
	}
	if len(l.records) < roomFor(&record) {
		select {
		case l.records <- record:
			return
		default:
		}
	}
	l.omit(&record, audit.BufferFull)
}

func (l *Log) omit(record *audit.Record, cause audit.Cause) {
	l.metrics.drop(cause)
	l.omitted.add(record, cause)
}

// Close writes the waiting records. It returns when that is done or ctx has ended; later records
// are dropped, and so are those that cannot be written then. Closing twice is no error.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.isClosed {
		l.isClosed = true
		close(l.records)
		close(l.closing)
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
	summaries := l.clock.NewTicker(summaryPeriod)
	defer summaries.Stop()
	for {
		select {
		case record, isOpen := <-l.records:
			if !isOpen {
				l.summarise(encoder)
				return
			}
			l.encode(encoder, &record)
			if len(l.records) == 0 || l.batch.Len() >= batchBytes {
				l.flush()
			}
		case <-summaries.C():
			l.summarise(encoder)
		}
	}
}

func (l *Log) encode(encoder *json.Encoder, record *audit.Record) {
	// Encoding a record cannot fail: it holds no type that could.
	if err := encoder.Encode(record); err == nil {
		l.lines++
	}
}

// summarise writes what has been omitted. It does not compete with other records for room.
func (l *Log) summarise(encoder *json.Encoder) {
	for _, record := range l.omitted.drain() {
		l.encode(encoder, &record)
	}
	l.flush()
}

// flush writes the batch. It tries again until it succeeds, from where the write before has ended,
// while further records wait in the buffer; when the log is being closed, it tries once more.
func (l *Log) flush() {
	batch := l.batch.Bytes()
	wasTorn := l.isTorn
	if wasTorn {
		batch = slices.Concat(newline, batch) // So that the first line is whole.
	}
	for text := batch; len(text) > 0; {
		isLast := l.isClosing()
		count, err := l.writer.Write(text)
		text = text[min(max(count, 0), len(text)):]
		l.setFailing(err)
		if err == nil {
			l.isTorn = false
			break
		}
		if isLast {
			l.giveUp(batch[:len(batch)-len(text)], wasTorn)
			break
		}
		select {
		case <-l.clock.After(retryPause):
		case <-l.closing:
		}
	}
	l.batch.Reset()
	l.lines = 0
}

// giveUp counts the lines of the batch that are not in the text that was written. If the text before it was
// torn, it begins with the end of that.
func (l *Log) giveUp(written []byte, wasTorn bool) {
	whole := bytes.Count(written, newline)
	if wasTorn && whole > 0 {
		whole--
	}
	for range l.lines - whole {
		l.metrics.drop(audit.NotWritten)
	}
	if len(written) > 0 {
		l.isTorn = !bytes.HasSuffix(written, newline)
	}
}

func (l *Log) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

func (l *Log) setFailing(err error) {
	switch {
	case err != nil && !l.isFailing:
		l.metrics.failing.Set(1)
		l.log.Error(err, "Could not write audit records; they are kept and written again")
	case err == nil && l.isFailing:
		l.metrics.failing.Set(0)
		l.log.Info("Audit records are written again")
	}
	l.isFailing = err != nil
}
