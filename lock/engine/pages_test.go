package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// endless answers with one chunk after the other, also when its caller has gone.
type endless struct {
	*etcd
	listed func()
	lists  *int
}

func (e endless) List(context.Context, metav1.ListOptions) (*v1alpha1.LockList, error) {
	*e.lists++
	e.listed()
	return &v1alpha1.LockList{ListMeta: metav1.ListMeta{Continue: fmt.Sprint(*e.lists)}}, nil
}

func TestAPageWhoseCallerHasGoneReadsNoOtherChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		etcd, lists := newEtcd(), 0
		running := startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return endless{etcd, cancel, &lists} }, Limits: rules.DefaultLimits(),
		})
		if _, err := running.ListPage(ctx, "default", lock.PageRequest{Prefix: "a", Limit: 1}); !errors.Is(err, context.Canceled) || lists != 1 {
			t.Errorf("%d lists, %v", lists, err)
		}
	})
}
