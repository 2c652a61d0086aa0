package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// BeginWait begins the span of a caller that waits for a lock. With [Tracer.Within], [Tracer.EndedBy] and
// [Tracer.EndWait] it implements the engine's Tracer.
func (t *Tracer) BeginWait(ctx context.Context, namespace string, key v1alpha1.FullKey) context.Context {
	if t == nil || !isTraced(ctx) {
		return ctx
	}
	ctx, _ = t.spans.Start(ctx, "wait", trace.WithAttributes(namespaceKey.String(namespace), lockKey.String(text(key.Bare()))))
	return ctx
}

// Within returns ctx for a request that is made for the waiting caller.
func (t *Tracer) Within(ctx, wait context.Context) context.Context {
	if t == nil || !isTraced(wait) {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(wait))
}

// EndedBy links the wait to the call that has ended the lock.
func (t *Tracer) EndedBy(wait, release context.Context) {
	if t == nil || !isTraced(wait) {
		return
	}
	if by := trace.SpanContextFromContext(release); by.IsValid() {
		trace.SpanFromContext(wait).AddLink(trace.Link{SpanContext: by})
	}
}

// EndWait ends the span of a wait.
func (t *Tracer) EndWait(wait context.Context, err error) {
	if t == nil || !isTraced(wait) {
		return
	}
	span := trace.SpanFromContext(wait)
	fail(span, err)
	span.End()
}
