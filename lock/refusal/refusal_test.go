package refusal_test

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
)

// answer is what the API server answers with a code that its storage uses, too.
func answer(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func TestLostRacesAreNoRefusals(t *testing.T) {
	const (
		webhook  = `admission webhook "x.example.com" denied the request: no`
		own      = `admission webhook "lock.forrst.dev" denied the request: the lock has changed`
		policy   = `locks.forrst.dev "k" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`
		conflict = metav1.StatusReasonConflict
		notFound = metav1.StatusReasonNotFound
	)
	locks := v1alpha1.Resource("locks")
	cases := map[string]struct {
		err                             error
		isRefused, isConflict, notFound bool
	}{
		"storage, a conflict":        {err: apierrors.NewConflict(locks, "k", errors.New("the object has been modified")), isConflict: true},
		"storage, not found":         {err: apierrors.NewNotFound(locks, "k"), notFound: true},
		"our webhook, a conflict":    {err: answer(http.StatusConflict, conflict, own), isConflict: true},
		"another webhook, 409":       {err: answer(http.StatusConflict, conflict, webhook), isRefused: true},
		"another webhook, 404":       {err: answer(http.StatusNotFound, notFound, webhook), isRefused: true},
		"a policy, 409":              {err: answer(http.StatusConflict, conflict, policy), isRefused: true},
		"a policy, 404":              {err: answer(http.StatusNotFound, notFound, policy), isRefused: true},
		"no answer":                  {err: errors.New(webhook)},
		"no error":                   {},
		"a wrapped refusal":          {err: refusal.WithoutOwners(answer(http.StatusConflict, conflict, webhook), "no"), isRefused: true},
		"a right that is not a rule": {err: apierrors.NewForbidden(locks, "k", errors.New("not yet ready to handle request"))},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			_, isRefused := refusal.Of(test.err)
			if isRefused != test.isRefused || refusal.IsConflict(test.err) != test.isConflict || refusal.IsNotFound(test.err) != test.notFound {
				t.Errorf("refused %t, a conflict %t, not found %t", isRefused, refusal.IsConflict(test.err), refusal.IsNotFound(test.err))
			}
		})
	}
}
