package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// Several programs may use the same owner token. A program must not take the grant of another for
// its own unanswered one.
func TestAnotherGrantOfTheSameOwnerIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startWith(t, engine.Options{Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), IsAdmitted: true})
		theirs := rules.Grant("default", by("shared").Acquisition, rules.DefaultLimits(), time.Now())
		etcd.inject(faults{before: func(verb string) error {
			if verb != "create" {
				return nil
			}
			etcd.inject(faults{})
			etcd.mu.Lock()
			defer etcd.mu.Unlock()
			etcd.store(theirs)
			return errLostAnswer
		}})
		if _, err := engine.Acquire(t.Context(), "default", by("shared")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		pass(20 * time.Second)
		if owner := etcd.owner(name); owner != "shared" {
			t.Error("the grant of the other program was ended")
		}
	})
}
