package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// holding is an engine that names the holder, as admission does for programs.
type holding struct{ *engine.Engine }

func (h holding) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	request.Holder = "alice"
	return h.Engine.Acquire(ctx, namespace, request)
}

func TestClientOnTheEngineCostsNoRequestOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		client := lock.NewClient(holding{start(t, etcd)}, "default")
		etcd.made()
		held := mustHold(t, client)
		pass(5 * time.Second)
		mustRelease(t, held)
		if diff := cmp.Diff([]string{"create", "delete"}, etcd.made()); diff != "" {
			t.Errorf("requests of a lock held for five seconds (-want +got):\n%s", diff)
		}

		first := mustHold(t, client)
		time.AfterFunc(time.Second, func() { mustRelease(t, first) })
		second := mustHold(t, client)
		if second.FencingToken() <= first.FencingToken() {
			t.Errorf("token %d after %d", second.FencingToken(), first.FencingToken())
		}
		pass(time.Second)
		if diff := cmp.Diff([]string{"create", "update"}, etcd.made()); diff != "" {
			t.Errorf("requests of a hand-off (-want +got):\n%s", diff)
		}
		mustRelease(t, second)
	})
}

func TestClientOnTheEngineNoticesALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := start(t, newEtcd())
		client := lock.NewClient(holding{engine}, "default")
		held := mustHold(t, client)
		pass(12 * time.Second) // a renewal is not a loss
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.ForceRelease(t.Context(), "billing:report", "stuck"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := held.Err(); !errors.Is(err, lock.ErrForceReleased) {
			t.Errorf("got %v, want ErrForceReleased", err)
		}
		_ = held.Release(t.Context())
	})
}
