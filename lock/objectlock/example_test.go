package objectlock_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/objectlock"
)

// recolor can only be called by holders of the object's lock.
func recolor(ctx context.Context, guard *objectlock.Writer[*corev1.ConfigMap], locked *objectlock.Locked[*corev1.ConfigMap]) error {
	locked.Object().Data["color"] = "blue"
	return guard.Patch(ctx, locked)
}

func ExampleAcquire() {
	ctx := context.Background()
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"},
		Data:       map[string]string{"color": "red"},
	}
	cluster := fake.NewClientBuilder().WithObjects(settings).Build()
	guard := objectlock.NewWriter[*corev1.ConfigMap](cluster)
	locks := lock.NewClient(locktest.New(), "shop")

	locked, err := objectlock.Acquire(ctx, locks, cluster, settings)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(locked.Held().Key(), locked.Object().Data["color"])
	fmt.Println(recolor(ctx, guard, locked), locked.Object().Data["color"])

	fmt.Println(locked.Release(ctx))
	fmt.Println(errors.Is(recolor(ctx, guard, locked), lock.ErrReleased))
	// Output:
	// lock:object:configmap:shop:settings red
	// <nil> blue
	// <nil>
	// true
}
