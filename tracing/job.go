package tracing

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Job is the trace of a Job that waits for a lock: until its start, and then of the release of the lock. It is
// not safe for concurrent use. The methods of a nil *Job do nothing.
type Job struct {
	within context.Context // the passes of many reconciliations make one trace
	span   trace.Span
}

// BeginJob begins the span of a Job that has waited since then. It begins a trace: no caller is there.
func (t *Tracer) BeginJob(namespace, name string, key v1alpha1.FullKey, since time.Time) *Job {
	if t == nil {
		return nil
	}
	within, span := t.spans.Start(context.Background(), "start job", trace.WithTimestamp(since))
	if span.IsRecording() {
		span.SetAttributes(namespaceKey.String(namespace), lockKey.String(text(key.Bare())), jobKey.String(name))
	}
	return &Job{within: within, span: span}
}

// Within returns ctx for what is done for the Job.
func (j *Job) Within(ctx context.Context) context.Context {
	if j == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(j.within))
}

// Started ends the span: the Job was started with the fencing token.
func (j *Job) Started(token int64) {
	if j == nil || j.span == nil {
		return
	}
	j.span.SetAttributes(fencingKey.Int64(token))
	j.end()
}

// Failed ends the span, if the Job was not started: the error, which must not be nil, says why.
func (j *Job) Failed(err error) {
	if j == nil || j.span == nil {
		return
	}
	fail(j.span, err)
	j.end()
}

// end ends the span, and lets go of what it has recorded: a Job may run for long.
func (j *Job) end() {
	j.span.End()
	j.within, j.span = trace.ContextWithSpanContext(context.Background(), j.span.SpanContext()), nil
}

// BeginRelease begins the span of the release of a lock that was held for a Job. Of the grant of an earlier
// process, whose trace is not known, the Job is nil. The function must be called with the outcome. No span is
// sent if it is nil and nothing was asked of the API server, as by a hand-off that finds no waiter.
func (t *Tracer) BeginRelease(ctx context.Context, of *Job, namespace string, key v1alpha1.FullKey) (_ context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	hasSent := &atomic.Bool{}
	ctx, span := t.spans.Start(context.WithValue(of.Within(ctx), hasSentKey{}, hasSent), "release")
	if span.IsRecording() {
		span.SetAttributes(namespaceKey.String(namespace), lockKey.String(text(key.Bare())))
	}
	return ctx, func(err error) {
		if err == nil && !hasSent.Load() {
			return
		}
		fail(span, err)
		span.End()
	}
}

// hasSentKey is the key of the *atomic.Bool that says whether a request was sent for a release.
type hasSentKey struct{}
