package sender

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryAfterSeconds is when to try again what was refused for the rate.
const retryAfterSeconds = 1

// allow returns an error that is retryable, see [apierrors.IsTooManyRequests], if a review may cost no
// request now.
func allow(ctx context.Context) error {
	if s := FromContext(ctx); s.Allow != nil && !s.Allow() {
		return apierrors.NewTooManyRequests("reviews from this network cost too many requests at the moment", retryAfterSeconds)
	}
	return nil
}

type limitedReader struct{ reader client.Reader }

// LimitReader returns a reader whose requests count against the rate of the sender in their context.
func LimitReader(reader client.Reader) client.Reader { return limitedReader{reader} }

// Get implements [client.Reader].
func (r limitedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := allow(ctx); err != nil {
		return err
	}
	return r.reader.Get(ctx, key, object, options...)
}

// List implements [client.Reader].
func (r limitedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := allow(ctx); err != nil {
		return err
	}
	return r.reader.List(ctx, list, options...)
}

// LimitAuthorizer returns an authorizer whose questions count against the rate of the sender in their
// context, also those that it answers from memory.
func LimitAuthorizer(asked authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if err := allow(ctx); err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
		return asked.Authorize(ctx, attributes)
	})
}
