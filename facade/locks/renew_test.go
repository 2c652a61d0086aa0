package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// renewals is a backend that renews whatever it is asked to, as an engine with IsValidated.
type renewals struct {
	lock.Backend
	asked []time.Duration
}

func (r *renewals) Renew(_ context.Context, _ string, _ v1alpha1.FullKey, _ lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	r.asked = append(r.asked, ttl)
	return &v1alpha1.Lock{}, nil
}

func TestTTLOfARenewal(t *testing.T) {
	limits := rules.Limits{DefaultTTL: time.Minute, MaxTTL: time.Hour}
	for ttl, isValid := range map[time.Duration]bool{
		0: true, time.Millisecond: true, time.Hour: true, -1: false, time.Millisecond - 1: false, time.Hour + 1: false, 1<<63 - 1: false,
	} {
		backend := &renewals{Backend: locktest.New()}
		l, err := locks.New(locks.Options{Backend: backend, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		caller := &access.Caller{User: &user.DefaultInfo{Name: "b"}, Namespace: "default"}
		renewal, err := l.PrepareRenew(caller, "lock:k", locks.OwnerClaim("o"), ttl)
		if len(backend.asked) > 0 {
			t.Errorf("%s: renewed before it was said to", ttl)
		}
		if isValid {
			if _, renewErr := renewal.Renew(t.Context()); err != nil || renewErr != nil {
				t.Errorf("%s: got %v, %v", ttl, err, renewErr)
			}
			if diff := cmp.Diff([]time.Duration{ttl}, backend.asked); diff != "" {
				t.Errorf("renewed (-want +got):\n%s", diff)
			}
			continue
		}
		invalid, ok := errors.AsType[*lock.InvalidError](err)
		if !ok || len(invalid.Problems) != 1 || invalid.Problems[0].Field != "spec.ttl" {
			t.Errorf("%s: got %v", ttl, err)
		}
	}
}
