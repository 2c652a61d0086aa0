package otlp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"
)

// receiver notes the sizes of batches. It may be away, which holds a batch up until its context ends.
type receiver struct {
	mu      sync.Mutex
	batches []int
	isAway  bool
	isEnded bool
}

func (r *receiver) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.mu.Lock()
	r.batches = append(r.batches, len(spans))
	isAway := r.isAway
	r.mu.Unlock()
	if isAway {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (r *receiver) received() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

func (r *receiver) goAway() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isAway = true
}

func (r *receiver) Shutdown(context.Context) error {
	r.isEnded = true
	return nil
}

// queued runs the test with a queue for 8 spans, 4 at once, whose clock is that of the bubble.
func queued(t *testing.T, test func(to *receiver, end func(spans int), stop func(), log *strings.Builder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		to, log := &receiver{}, &strings.Builder{}
		logger := funcr.New(func(_, line string) { log.WriteString(line + "\n") }, funcr.Options{})
		limits := bounds{spans: 8, batch: 4, delay: 5 * time.Second, timeout: 30 * time.Second}
		q := newQueue(to, limits, clock.RealClock{}, &lossLog{clock: clock.RealClock{}, logger: logger})
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
		tracer := provider.Tracer("test")
		end := func(spans int) {
			for range spans {
				_, span := tracer.Start(t.Context(), "span")
				span.End()
			}
		}
		stop := func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), StopTimeout)
			defer cancel()
			if err := provider.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if !to.isEnded {
				t.Error("the connection is still there")
			}
		}
		test(to, end, stop, log)
	})
}

func TestBatchesAreSentWhenFullOrAfterTheDelay(t *testing.T) {
	queued(t, func(to *receiver, end func(int), stop func(), log *strings.Builder) {
		for _, step := range []struct {
			spans int
			pause time.Duration
			want  []int
		}{
			{3, 4999 * time.Millisecond, nil},
			{0, time.Millisecond, []int{3}},
			{4, 0, []int{3, 4}},
			{5, 0, []int{3, 4, 4}},
			{0, 5 * time.Second, []int{3, 4, 4, 1}},
			{0, time.Minute, []int{3, 4, 4, 1}},
		} {
			end(step.spans)
			<-time.After(step.pause)
			synctest.Wait()
			if got := to.received(); !slices.Equal(got, step.want) {
				t.Errorf("batches of %v spans, want %v", got, step.want)
			}
		}
		end(1)
		stop()
		if got := len(to.received()); got != 5 {
			t.Error("the last span was not sent")
		}
		if log.Len() > 0 {
			t.Error(log)
		}
	})
}

func TestTheQueueIsBoundedAndTellsWhatItDrops(t *testing.T) {
	queued(t, func(to *receiver, end func(int), stop func(), log *strings.Builder) {
		to.goAway()
		end(4)
		synctest.Wait()
		end(100) // 8 of them wait
		<-time.After(10 * time.Minute)
		synctest.Wait()
		stop()
		sent := 0
		for _, batch := range to.received() {
			sent += batch
		}
		if sent != 12 {
			t.Errorf("%d spans were to be sent", sent)
		}
		for _, want := range []string{`"lostSpans"=4`, `"lostSpans"=100`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %s in %s", want, log)
			}
		}
	})
}

func TestStoppingWaitsForNoReceiver(t *testing.T) {
	queued(t, func(to *receiver, end func(int), stop func(), log *strings.Builder) {
		to.goAway()
		end(8)
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took > StopTimeout {
			t.Errorf("it took %v", took)
		}
		end(1)
		if len(to.received()) != 1 || !strings.Contains(log.String(), `"lostSpans"=4`) {
			t.Errorf("%v %s", to.received(), log)
		}
	})
}

func TestUnsampledSpansAreNotKept(t *testing.T) {
	to := &receiver{}
	q := newQueue(to, bounds{spans: 8, batch: 1, delay: time.Hour, timeout: time.Hour}, clock.RealClock{}, &lossLog{clock: clock.RealClock{}})
	recorder := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q), sdktrace.WithSampler(recordOnly{}))
	_, span := recorder.Tracer("test").Start(t.Context(), "span")
	span.End()
	if err := q.ForceFlush(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if err := recorder.Shutdown(t.Context()); err != nil || len(to.received()) != 0 {
		t.Error(err, to.received())
	}
}

// recordOnly lets spans be recorded that are not sent.
type recordOnly struct{}

func (recordOnly) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly, Tracestate: trace.TraceState{}}
}
func (recordOnly) Description() string { return "records only" }

func TestBoundsOfTheEnvironment(t *testing.T) {
	usual := bounds{spans: 2048, batch: 512, delay: 5 * time.Second, timeout: 30 * time.Second}
	for name, test := range map[string]struct {
		set  map[string]string
		want bounds
	}{
		"none": {nil, usual},
		"all": {map[string]string{
			"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "7", "OTEL_BSP_EXPORT_TIMEOUT": "9",
		}, bounds{100, 10, 7 * time.Millisecond, 9 * time.Millisecond}},
		"a small queue": {map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "4"}, bounds{4, 4, usual.delay, usual.timeout}},
		"wrong":         {map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_BSP_SCHEDULE_DELAY": "5s"}, usual},
	} {
		if got := boundsOf(func(name string) string { return test.set[name] }); got != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
