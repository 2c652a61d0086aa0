package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

func TestAnEngineThatWasNotStartedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := lock.NewDirectEngine(&rest.Config{Host: "http://127.0.0.1:1"}, "default", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		request := lock.Request{Acquisition: rules.Acquisition{Key: "k", TTL: time.Minute}}
		begun := time.Now()
		_, err = engine.Acquire(t.Context(), "default", request)
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "call Start") || time.Since(begun) != lock.DefaultOperationTimeout {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := engine.Acquire(ctx, "default", request); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that has gone: %v", err)
		}
		// It may be started at the same time as it is used.
		stopped, stop := context.WithCancel(t.Context())
		stop()
		time.AfterFunc(time.Second, func() { _ = engine.Start(stopped) })
		begun = time.Now()
		if _, err := engine.Acquire(t.Context(), "default", request); strings.Contains(err.Error(), "call Start") || time.Since(begun) >= lock.DefaultOperationTimeout {
			t.Errorf("after the start: %v", err)
		}
	})
}
