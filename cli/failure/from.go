package failure

import (
	"context"
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"

	"forrst.dev/lock-operator/lock"
)

// What to do about errors that do not belong to one command.
const (
	doTryAgain  = "try again; a renewal or a release may be repeated safely"
	doAskRights = "ask an administrator of the cluster for this right"
)

// From returns err as an Error: err itself if it is an Error, or a new one that says what the
// errors of the SDK and of the API server mean. Doctor is the command that finds out what is wrong
// with an installation. Nil stays nil.
func From(err error, doctor string) *Error {
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed
	}
	code, do := kindOf(err, "find out what is wrong: "+doctor)
	return New(code, err.Error(), do...)
}

func kindOf(err error, doDoctor string) (code Code, do []string) {
	switch {
	case errors.Is(err, context.Canceled):
		return Failed, nil
	case clientcmd.IsEmptyConfig(err):
		return Unavailable, []string{"name a kubeconfig with --kubeconfig or KUBECONFIG", "name a façade with --server URL"}
	case errors.Is(err, lock.ErrHeld):
		return Busy, nil
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrOwnerMismatch), errors.Is(err, lock.ErrStale):
		return NotHeld, nil
	case isUnauthenticated(err):
		return Refused, []string{doLogIn}
	case isImpersonation(err):
		return Refused, []string{doImpersonate}
	case isUntrusted(err):
		return Unavailable, []string{doTrust}
	case errors.Is(err, lock.ErrForbidden), apierrors.IsForbidden(err):
		return Refused, []string{doAskRights}
	case errors.Is(err, lock.ErrRefused):
		return Refused, nil
	case errors.Is(err, lock.ErrInvalid), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Usage, nil
	case apimeta.IsNoMatchError(err):
		return Unavailable, []string{"install lock-operator in this cluster, or choose another cluster with --context", doDoctor}
	case errors.Is(err, lock.ErrUnavailable), isUnanswered(err):
		return Unavailable, []string{doTryAgain, doDoctor}
	default:
		return Failed, nil
	}
}

// isUnanswered reports whether the API server could not be reached or could not answer.
func isUnanswered(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	_, ok := errors.AsType[*url.Error](err)
	return ok
}
