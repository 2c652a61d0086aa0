package reaper_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/rules"
)

// A lock whose delete is refused is still there: it must be tried again, and the refusal be logged.
func TestADeleteThatIsRefusedIsAnError(t *testing.T) {
	const owner = "owner-of-the-lock"
	denied := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "x.example.com" denied the request: not ` + owner,
		}}
	}
	locks := v1alpha1.Resource("locks")
	cases := map[string]struct {
		err                  error
		isRefused, mayBeDone bool
	}{
		"a lock that has changed":     {err: apierrors.NewConflict(locks, "k", errors.New("the object has been modified"))},
		"a lock that is gone":         {err: apierrors.NewNotFound(locks, "k")},
		"a webhook that conflicts":    {err: denied(http.StatusConflict, metav1.StatusReasonConflict), isRefused: true},
		"a webhook that says 404":     {err: denied(http.StatusNotFound, metav1.StatusReasonNotFound), isRefused: true},
		"a webhook that forbids":      {err: denied(http.StatusForbidden, metav1.StatusReasonForbidden), isRefused: true},
		"an API server without locks": {err: errors.New("404 Not Found, which is no answer of the API server"), isRefused: true, mayBeDone: true},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			writer := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return test.err },
			})
			var reaper reaper.Reaper
			expired := rules.Grant("default", rules.Acquisition{Key: "k", Owner: owner, Holder: "alice"}, rules.DefaultLimits(), time.Unix(1_700_000_000, 0))
			isDeleted, err := reaper.Delete(t.Context(), writer, expired, time.Unix(1_800_000_000, 0))
			if isDeleted || (err != nil) != test.isRefused {
				t.Errorf("got %t, %v; want an error: %t", isDeleted, err, test.isRefused)
			}
			if err != nil && strings.Contains(err.Error(), owner) {
				t.Errorf("the owner token is in %v", err)
			}
			if isChecked := reaper.RecheckAfter(client.ObjectKeyFromObject(expired)) != 0; isChecked != test.mayBeDone {
				t.Errorf("the delete is taken for unanswered: %t", isChecked)
			}
		})
	}
}
