package installation

import (
	"errors"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func TestTry(t *testing.T) {
	backend := locktest.New()
	token, err := Try(t.Context(), backend, "payments")
	if err != nil || token <= 0 {
		t.Fatalf("got the token %d and %v", token, err)
	}
	key := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", trialKey)
	if _, err := backend.Get(t.Context(), "payments", key); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("after the trial, the lock is there: %v", err)
	}
	again, err := Try(t.Context(), backend, "payments")
	if err != nil || again <= token {
		t.Errorf("a second trial got the token %d and %v", again, err)
	}
}

func TestTryWithoutAnAnswer(t *testing.T) {
	backend := locktest.New()
	backend.SetUnavailable(true)
	if _, err := Try(t.Context(), backend, "payments"); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
