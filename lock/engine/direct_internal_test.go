package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock"
)

func TestAcquireFailsIfTheEngineWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &Engine{clock: clock.RealClock{}, timeout: 5 * time.Second, started: make(chan struct{})}
		if err := engine.awaitStart(t.Context()); err != nil {
			t.Errorf("an engine without an informer of its own: %v", err)
		}
		engine.runInformer = func(context.Context) {}
		begun := time.Now()
		if err := engine.awaitStart(t.Context()); !errors.Is(err, lock.ErrUnavailable) || time.Since(begun) != engine.timeout {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := engine.awaitStart(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that has gone: %v", err)
		}
		// It may be started while it is used already.
		time.AfterFunc(time.Second, func() { close(engine.started) })
		for range 2 {
			if err := engine.awaitStart(t.Context()); err != nil {
				t.Errorf("an engine that was started: %v", err)
			}
		}
	})
}

func TestDirectEngineRefusesAnotherNamespace(t *testing.T) {
	engine, err := NewDirect(&rest.Config{Host: "http://127.0.0.1:1"}, "payments", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"billing", ""} {
		_, err := lock.NewClient(engine, namespace).TryAcquire(t.Context(), "billing:report")
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("namespace %q: %v", namespace, err)
		}
	}
	if err := engine.checkNamespace("payments"); err != nil {
		t.Errorf("its own namespace: %v", err)
	}
}
