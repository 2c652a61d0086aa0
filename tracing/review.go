package tracing

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Review is what the API server asks to admit.
type Review struct {
	// Verb is create, update, delete or connect, and Resource what is written, with its subresource.
	Verb, Resource string
	// Namespace and Name are those of the object. The name may be empty.
	Namespace, Name string
}

type reviewKey struct{}

// arrivedReview is what is known of a review before it is read.
type arrivedReview struct {
	at     time.Time
	parent Parent
}

// ReviewContext returns ctx for a review that has arrived with the request, for [Tracer.BeginReview]. A review
// that an API server asks for in a trace of its own belongs to that.
func (t *Tracer) ReviewContext(ctx context.Context, request *http.Request) context.Context {
	if t.Declines(request.Header) {
		return ctx
	}
	return context.WithValue(ctx, reviewKey{}, &arrivedReview{t.now(), ParentOfHeaders(ctx, request.Header)})
}

// BeginReview begins the span of a review, as of its arrival, and returns the context of what it does, and a
// function that must be called with the outcome: OK or the reason of the refusal.
func (t *Tracer) BeginReview(ctx context.Context, review Review) (_ context.Context, end func(outcome string)) {
	arrived, ok := ctx.Value(reviewKey{}).(*arrivedReview)
	if !ok {
		return ctx, func(string) {}
	}
	if arrived.parent.within.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, arrived.parent.within)
	}
	ctx, span := t.spans.Start(ctx, "admit "+review.Verb+" "+review.Resource, ofServer, trace.WithTimestamp(arrived.at))
	return ctx, func(outcome string) {
		attributes := make([]attribute.KeyValue, 0, 6)
		attributes = append(attributes, doorKey.String("webhook"), apiVerb.String(review.Verb), apiResource.String(review.Resource),
			namespaceKey.String(text(review.Namespace)), outcomeKey.String(outcome))
		if review.Name != "" {
			attributes = append(attributes, objectKey.String(text(review.Name)))
		}
		span.SetAttributes(attributes...)
		if outcome != okOutcome {
			failAs(span, outcome)
		}
		span.End()
	}
}
