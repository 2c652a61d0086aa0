// Package traced makes the spans of reviews.
package traced

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/tracing"
)

// Webhook returns the webhook of the handler. The tracer makes a span of each review; nil makes none.
func Webhook(tracer *tracing.Tracer, handler admission.Handler) *admission.Webhook {
	if tracer == nil {
		return &admission.Webhook{Handler: handler}
	}
	return &admission.Webhook{
		WithContextFunc: tracer.ReviewContext,
		Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) (response admission.Response) {
			resource := request.Resource.Resource
			if request.SubResource != "" {
				resource += "/" + request.SubResource
			}
			ctx, end := tracer.BeginReview(ctx, tracing.Review{
				Verb: strings.ToLower(string(request.Operation)), Resource: resource, Namespace: request.Namespace, Name: request.Name,
			})
			defer func() { end(outcomeOf(response)) }() // after a panic, too
			return handler.Handle(ctx, request)
		}),
	}
}

// outcomeOf is OK or the reason of a refusal, one of a bounded number of texts: never its message, which may
// repeat what the user has written.
func outcomeOf(response admission.Response) string {
	switch {
	case response.Allowed:
		return "OK"
	case response.Result == nil || response.Result.Reason == "":
		return "Unknown"
	}
	return string(response.Result.Reason)
}
