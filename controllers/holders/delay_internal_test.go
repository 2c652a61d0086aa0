package holders

import (
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// awayReader reads through a proxy that does not reach the API server.
type awayReader struct{ client.Reader }

func (awayReader) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet, v1alpha1.Resource("locks"), key.Name, "default backend - 404", 0, true)
}

// Nothing wakes the lock of an ended holder again, so the Not Found of a proxy must not end the work on it.
func TestThe404OfAProxyDoesNotForgetAnEndedHolder(t *testing.T) {
	r := &Reconciler{Clock: servertime.New(clock.RealClock{}), LiveReader: awayReader{}}
	lock := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{ReleaseDelay: &v1alpha1.Duration{Duration: time.Minute}}}
	if result, err := r.releaseAfterDelay(t.Context(), lock, holderEnd{}); err == nil {
		t.Errorf("got %+v and no error", result)
	}
}
