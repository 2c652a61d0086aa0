package otlp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/utils/clock"
)

// errQueueFull says why spans were dropped.
var errQueueFull = errors.New("more spans ended than could be sent; see OTEL_BSP_MAX_QUEUE_SIZE")

// bounds are those of a queue, by the names and with the defaults of OpenTelemetry.
type bounds struct {
	// spans is how many wait at most, batch how many are sent at once.
	spans, batch int
	// delay is how long a span waits for others to be sent with; timeout bounds the sending of a batch.
	delay, timeout time.Duration
}

func boundsOf(getenv func(string) string) bounds {
	number := func(name string, usual int) int {
		if value, err := strconv.Atoi(getenv("OTEL_BSP_" + name)); err == nil && value > 0 {
			return value
		}
		return usual
	}
	b := bounds{
		spans: number("MAX_QUEUE_SIZE", DefaultQueue), batch: number("MAX_EXPORT_BATCH_SIZE", DefaultBatch),
		delay:   time.Duration(number("SCHEDULE_DELAY", 5000)) * time.Millisecond,
		timeout: time.Duration(number("EXPORT_TIMEOUT", 30_000)) * time.Millisecond,
	}
	b.batch = min(b.batch, b.spans)
	return b
}

// queue keeps the spans that have ended until they are sent. The SDK's own one wakes its goroutine for each
// span, which costs a call more than its spans do, and does not tell how many it has dropped.
type queue struct {
	bounds bounds
	sender sdktrace.SpanExporter
	clock  clock.WithTicker
	log    *lossLog

	mu        sync.Mutex
	spans     []sdktrace.ReadOnlySpan
	dropped   int
	isStopped bool

	// isFull tells that there is a batch to send.
	isFull chan struct{}
	stop   chan struct{}
	// working is that of what is sent, which cancel gives up.
	working context.Context // its goroutine outlives the calls whose spans it sends
	cancel  context.CancelFunc
	ended   chan struct{}
}

var _ sdktrace.SpanProcessor = (*queue)(nil)

// newQueue returns a queue with a goroutine, which ends with Shutdown.
func newQueue(sender sdktrace.SpanExporter, bounds bounds, clock clock.WithTicker, log *lossLog) *queue {
	q := &queue{
		bounds: bounds, sender: sender, clock: clock, log: log,
		isFull: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	q.working, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// OnStart implements the SDK's SpanProcessor.
func (*queue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements the SDK's SpanProcessor. It never waits.
func (q *queue) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	q.mu.Lock()
	isDropped := q.isStopped || len(q.spans) >= q.bounds.spans
	if isDropped {
		q.dropped++
	} else {
		q.spans = append(q.spans, span)
	}
	isBatch := !isDropped && len(q.spans) == q.bounds.batch
	q.mu.Unlock()
	if isBatch {
		select {
		case q.isFull <- struct{}{}:
		default: // It knows.
		}
	}
}

// run sends batches that are full at once, and others after the delay.
func (q *queue) run() {
	defer close(q.ended)
	batch := make([]sdktrace.ReadOnlySpan, 0, q.bounds.batch)
	for isStopping := false; !isStopping; {
		delay, least := q.clock.NewTimer(q.bounds.delay), 1
		select {
		case <-q.stop:
			isStopping = true
		case <-q.isFull:
			least = q.bounds.batch
		case <-delay.C():
		}
		delay.Stop()
		for {
			batch = q.take(batch[:0], least)
			if len(batch) == 0 {
				break
			}
			q.send(batch)
			q.reportDropped()
			clear(batch) // What is sent need not stay in memory until the next time.
			if !isStopping {
				least = q.bounds.batch // Those that have come meanwhile wait for others.
			}
		}
	}
}

// take moves a batch from the queue, if there are at least so many spans.
func (q *queue) take(batch []sdktrace.ReadOnlySpan, least int) []sdktrace.ReadOnlySpan {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.spans) < least {
		return batch
	}
	count := min(len(q.spans), q.bounds.batch)
	batch = append(batch, q.spans[:count]...)
	left := copy(q.spans, q.spans[count:])
	clear(q.spans[left:])
	q.spans = q.spans[:left]
	return batch
}

func (q *queue) send(batch []sdktrace.ReadOnlySpan) {
	err := q.working.Err()
	if err == nil {
		ctx, cancel := context.WithTimeout(q.working, q.bounds.timeout)
		defer cancel()
		err = q.sender.ExportSpans(ctx, batch)
	}
	if err != nil {
		q.log.record(len(batch), err)
	}
}

func (q *queue) reportDropped() {
	q.mu.Lock()
	dropped := q.dropped
	q.dropped = 0
	q.mu.Unlock()
	if dropped > 0 {
		q.log.record(dropped, errQueueFull)
	}
}

// ForceFlush implements the SDK's SpanProcessor. Only Shutdown sends what is left.
func (*queue) ForceFlush(context.Context) error { return errors.ErrUnsupported }

// Shutdown implements the SDK's SpanProcessor. It sends what is left until ctx ends, and waits for the
// goroutine. It must be called once.
func (q *queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	q.isStopped = true
	q.mu.Unlock()
	close(q.stop)
	select {
	case <-q.ended:
	case <-ctx.Done():
	}
	q.cancel()
	<-q.ended
	q.reportDropped()
	q.log.end()
	if err := q.sender.Shutdown(ctx); err != nil {
		return fmt.Errorf("end the connection: %w", err)
	}
	return nil
}
