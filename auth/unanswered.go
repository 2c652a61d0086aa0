package auth

import (
	"context"
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isRequestError reports whether a request to the API server has failed. The refusal of a
// reviewed token is an error of another type.
func isRequestError(err error) bool {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
