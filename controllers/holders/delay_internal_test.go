package holders

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// awayReader does not reach the API server.
type awayReader struct{ client.Reader }

func (awayReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server is away")
}

// Nothing wakes the lock of an ended holder again, so a read that fails must not end the work on it.
func TestAReadThatFailsDoesNotForgetAnEndedHolder(t *testing.T) {
	whole := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{ReleaseDelay: &v1alpha1.Duration{Duration: time.Minute}}}
	for why, test := range map[string]struct {
		clock clock.Clock
		lock  *v1alpha1.Lock
	}{
		"the clock has heard no answer": {servertime.New(clock.RealClock{}), whole},
		"the cache has a part":          {clock.RealClock{}, rules.Stripped(whole)},
	} {
		r := &Reconciler{Clock: test.clock, LiveReader: awayReader{}}
		if result, err := r.releaseAfterDelay(t.Context(), test.lock, holderEnd{}); err == nil {
			t.Errorf("%s: got %+v and no error", why, result)
		}
	}
}
