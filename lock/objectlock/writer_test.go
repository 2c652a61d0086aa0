package objectlock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/objectlock"
	"forrst.dev/lock-operator/lock/rules"
)

func settingsMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", UID: "1"}, Data: map[string]string{"color": "red"}}
}

// guardedWorld is a cluster with one object, its lock and its writer.
type guardedWorld struct {
	service *locktest.Backend
	locks   *lock.Client
	cluster client.WithWatch
	guard   *objectlock.Writer[*corev1.ConfigMap]
}

func newGuardedWorld(objects ...client.Object) guardedWorld {
	cluster := fake.NewClientBuilder().WithObjects(objects...).Build()
	service := locktest.New()
	return guardedWorld{service: service, locks: lock.NewClient(service, "default"), cluster: cluster, guard: objectlock.NewWriter[*corev1.ConfigMap](cluster)}
}

func (w guardedWorld) mustLock(t *testing.T) *objectlock.Locked[*corev1.ConfigMap] {
	t.Helper()
	locked, err := objectlock.Acquire(t.Context(), w.locks, w.cluster, settingsMap())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locked.Release(context.WithoutCancel(t.Context())) })
	return locked
}

// color returns the color in the API server.
func (w guardedWorld) color(t *testing.T) string {
	t.Helper()
	found := settingsMap()
	if err := w.guard.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil {
		t.Fatal(err)
	}
	return found.Data["color"]
}

// interfere writes without the lock.
func (w guardedWorld) interfere(t *testing.T, color string) {
	t.Helper()
	found := settingsMap()
	if err := w.cluster.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil {
		t.Fatal(err)
	}
	found.Data["color"] = color
	if err := w.cluster.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

func TestObjectKey(t *testing.T) {
	tests := map[string]struct {
		kind   schema.GroupKind
		object client.ObjectKey
		want   string
	}{
		"of a group":        {schema.GroupKind{Group: "apps", Kind: "Deployment"}, client.ObjectKey{Namespace: "shop", Name: "web"}, "object:deployment.apps:shop:web"},
		"of the core group": {schema.GroupKind{Kind: "ConfigMap"}, client.ObjectKey{Namespace: "shop", Name: "settings"}, "object:configmap:shop:settings"},
		"of the cluster":    {schema.GroupKind{Kind: "Node"}, client.ObjectKey{Name: "worker-1"}, "object:node:worker-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := objectlock.Key(test.kind, test.object); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWritesPresentTheFencingToken(t *testing.T) {
	for name, test := range map[string]struct {
		fencedBy string
		want     bool
	}{
		"of an object that its lock fences":         {"object:configmap:shop:settings", true},
		"of an object that another lock fences":     {"deploy:shop", false},
		"of an object that is not behind any fence": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := settingsMap()
			if test.fencedBy != "" {
				settings.Annotations = map[string]string{v1alpha1.FencedByAnnotation: test.fencedBy, v1alpha1.FencingTokenAnnotation: "0"}
			}
			world := newGuardedWorld(settings)
			write := map[string]func(context.Context, *objectlock.Locked[*corev1.ConfigMap]) error{
				"update": func(ctx context.Context, locked *objectlock.Locked[*corev1.ConfigMap]) error {
					return world.guard.Update(ctx, locked)
				},
				"patch": func(ctx context.Context, locked *objectlock.Locked[*corev1.ConfigMap]) error {
					return world.guard.Patch(ctx, locked)
				},
			}
			for verb, write := range write {
				locked := world.mustLock(t)
				locked.Object().Data["color"] = verb
				if err := write(t.Context(), locked); err != nil {
					t.Fatal(err)
				}
				want := settings.Annotations[v1alpha1.FencingTokenAnnotation]
				if test.want {
					want = strconv.FormatInt(locked.Held().FencingToken(), 10)
				}
				if got := locked.Object().Annotations[v1alpha1.FencingTokenAnnotation]; got != want {
					t.Errorf("%s presented %q, want %q", verb, got, want)
				}
				if err := locked.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestLockObjectReadsAfterTheGrant(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	seen := settingsMap()
	// The former holder writes until it releases.
	world.service.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Acquire {
			world.interfere(t, "blue") // another writer
		}
		return nil
	}})
	locked, err := objectlock.Acquire(t.Context(), world.locks, world.cluster, seen)
	if err != nil {
		t.Fatal(err)
	}
	if locked.Object().Data["color"] != "blue" || seen.Data["color"] != "red" {
		t.Errorf("read %v and passed %v; want a fresh read and the passed object as it was", locked.Object().Data, seen.Data)
	}
	if got := locked.Held().Key(); got != "lock:object:configmap:shop:settings" {
		t.Errorf("locked %s", got)
	}
	if err := locked.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockObjectOfAKindThatHasNoType(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	object.SetNamespace("shop")
	object.SetName("settings")
	// Without a scheme, as a bare client.Reader.
	locked, err := objectlock.Acquire(t.Context(), world.locks, struct{ client.Reader }{world.cluster}, object)
	if err != nil {
		t.Fatal(err)
	}
	if color, _, _ := unstructured.NestedString(locked.Object().Object, "data", "color"); color != "red" {
		t.Errorf("read %v", locked.Object())
	}
	if err := locked.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockObjectRefuses(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	newer := settingsMap()
	newer.ResourceVersion = "1000000"
	var none *corev1.ConfigMap
	tests := map[string]struct {
		object *corev1.ConfigMap
		reader client.Reader
		want   func(error) bool
	}{
		"an object that is not there": {
			object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}},
			want:   apierrors.IsNotFound,
		},
		"no object":                          {object: none, want: isInvalid},
		"an object without a name":           {object: &corev1.ConfigMap{}, want: isInvalid},
		"a kind that is not known":           {object: settingsMap(), reader: struct{ client.Reader }{world.cluster}, want: isInvalid},
		"a reader that is behind the caller": {object: newer, want: isInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reader := test.reader
			if reader == nil {
				reader = world.cluster
			}
			if _, err := objectlock.Acquire(t.Context(), world.locks, reader, test.object); !test.want(err) {
				t.Errorf("got %v", err)
			}
			if held, err := world.locks.List(t.Context()); err != nil || len(held) != 0 {
				t.Errorf("locks %v are held, %v", held, err)
			}
		})
	}
}

func isInvalid(err error) bool { return errors.Is(err, lock.ErrInvalid) }

func TestGuardedWrites(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	locked := world.mustLock(t)
	for index, write := range []func() error{
		func() error { return world.guard.Update(t.Context(), locked) },
		func() error { return world.guard.Patch(t.Context(), locked) },
		func() error { return world.guard.Update(t.Context(), locked) },
	} {
		want := strconv.Itoa(index)
		locked.Object().Data["color"] = want
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if got := world.color(t); got != want || locked.Object().Data["color"] != want {
			t.Errorf("write %d: stored %q", index, got)
		}
	}
	if err := world.guard.Delete(t.Context(), locked); err != nil {
		t.Fatal(err)
	}
	if err := world.guard.Update(t.Context(), locked); err == nil {
		t.Error("an update brought the object back")
	}
	if err := world.guard.Create(t.Context(), settingsMap()); err != nil {
		t.Error(err)
	}
}

func TestGuardedWritesAreConditional(t *testing.T) {
	for name, write := range map[string]func(context.Context, guardedWorld, *objectlock.Locked[*corev1.ConfigMap]) error{
		"update": func(ctx context.Context, w guardedWorld, locked *objectlock.Locked[*corev1.ConfigMap]) error {
			return w.guard.Update(ctx, locked)
		},
		"patch": func(ctx context.Context, w guardedWorld, locked *objectlock.Locked[*corev1.ConfigMap]) error {
			return w.guard.Patch(ctx, locked)
		},
		"delete": func(ctx context.Context, w guardedWorld, locked *objectlock.Locked[*corev1.ConfigMap]) error {
			return w.guard.Delete(ctx, locked, client.Preconditions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := newGuardedWorld(settingsMap())
			locked := world.mustLock(t)
			world.interfere(t, "blue")
			locked.Object().Data["color"] = "green"
			locked.Object().ResourceVersion = "" // as one would to have the write go through
			if err := write(t.Context(), world, locked); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a conflict", err)
			}
			if got := world.color(t); got != "blue" {
				t.Errorf("stored %q, want blue", got)
			}
			if err := locked.Refresh(t.Context()); err != nil || locked.Object().Data["color"] != "blue" {
				t.Errorf("after a refresh: %v, %v", locked.Object().Data, err)
			}
			if err := write(t.Context(), world, locked); err != nil {
				t.Errorf("after a refresh: %v", err)
			}
		})
	}
}

func TestGuardedDeleteNamesTheObjectThatWasRead(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	var conditions *metav1.Preconditions
	intercepted := interceptor.NewClient(world.cluster, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			conditions = (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
			return nil
		},
	})
	locked := world.mustLock(t)
	if err := objectlock.NewWriter[*corev1.ConfigMap](intercepted).Delete(t.Context(), locked); err != nil {
		t.Fatal(err)
	}
	if conditions == nil || *conditions.UID != "1" || *conditions.ResourceVersion != locked.Object().ResourceVersion {
		t.Errorf("deleted under the conditions %v", conditions)
	}
}

func TestGuardedWritesEndWithTheLock(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	locked := world.mustLock(t)
	if err := world.locks.ForceRelease(t.Context(), "object:configmap:shop:settings", "stuck"); err != nil {
		t.Fatal(err)
	}
	<-locked.Held().Done()
	for name, err := range map[string]error{
		"update":        world.guard.Update(t.Context(), locked),
		"patch":         world.guard.Patch(t.Context(), locked),
		"update status": world.guard.UpdateStatus(t.Context(), locked),
		"patch status":  world.guard.PatchStatus(t.Context(), locked),
		"delete":        world.guard.Delete(t.Context(), locked),
		"refresh":       locked.Refresh(t.Context()),
		"release":       locked.Release(t.Context()),
	} {
		if !errors.Is(err, lock.ErrForceReleased) {
			t.Errorf("%s: got %v, want ErrForceReleased", name, err)
		}
	}
}

// docs/sdk.md, "Kubernetes objects under a lock": a write is refused once the program knows of the forced release. One in
// between passes, though never over a state of the object that the program has not read.
func TestAWriteAfterAForcedReleaseIsRefusedOnceTheProgramKnows(t *testing.T) {
	for name, test := range map[string]struct {
		hooks locktest.Hooks
		// after is when the program knows of the release.
		after time.Duration
	}{
		"by its watch":        {},
		"by its next renewal": {locktest.Hooks{Before: locktest.Failing(locktest.Watch, errors.ErrUnsupported)}, lock.DefaultTTL / 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := newGuardedWorld(settingsMap())
				world.service.SetHooks(test.hooks)
				locked := world.mustLock(t)
				synctest.Wait() // The watch has begun.
				write := func(color string) error {
					locked.Object().Data["color"] = color
					return world.guard.Update(t.Context(), locked)
				}
				if err := world.locks.ForceRelease(t.Context(), "object:configmap:shop:settings", "stuck"); err != nil {
					t.Fatal(err)
				}
				if test.after > 0 {
					synctest.Wait()
					if err := write("green"); err != nil || world.color(t) != "green" {
						t.Errorf("before the program knows: %v, and %s is stored", err, world.color(t))
					}
					world.interfere(t, "blue") // the next holder
					if err := write("red"); !apierrors.IsConflict(err) || world.color(t) != "blue" {
						t.Errorf("after a write of the next holder: %v, and %s is stored; want a conflict", err, world.color(t))
					}
					if err := locked.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := write("red"); err != nil || world.color(t) != "red" { // The object has no fence.
						t.Errorf("after a refresh: %v, and %s is stored", err, world.color(t))
					}
					time.Sleep(test.after + time.Second) //nolint:forbidigo // in a bubble: a third of the ttl, which varies by a tenth
				}
				synctest.Wait()
				before := world.color(t)
				if err := write("purple"); !errors.Is(err, lock.ErrForceReleased) || world.color(t) != before {
					t.Errorf("when the program knows: %v, and %s is stored", err, world.color(t))
				}
			})
		})
	}
}

func TestGuardedWriteIsCancelledWhenTheLockEnds(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	locked := world.mustLock(t)
	hanging := interceptor.NewClient(world.cluster, interceptor.Funcs{
		Update: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.UpdateOption) error {
			world.takeOver(ctx, t)
			<-ctx.Done()
			return ctx.Err()
		},
	})
	err := objectlock.NewWriter[*corev1.ConfigMap](hanging).Update(t.Context(), locked)
	if !errors.Is(err, lock.ErrTakenOver) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrTakenOver", err)
	}
}

// takeOver expires the lock and acquires it for another owner.
func (w guardedWorld) takeOver(ctx context.Context, t *testing.T) {
	t.Helper()
	request := lock.Request{Acquisition: rules.Acquisition{Key: "object:configmap:shop:settings"}}
	if err := w.service.Expire("default", request.FullKey()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.service.Acquire(ctx, "default", request); err != nil {
		t.Fatal(err)
	}
}

func TestGuardedRefusesALockedWithoutALock(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	for name, locked := range map[string]*objectlock.Locked[*corev1.ConfigMap]{"nil": nil, "the zero value": {}} {
		for _, err := range []error{world.guard.Update(t.Context(), locked), world.guard.Patch(t.Context(), locked), world.guard.Delete(t.Context(), locked)} {
			if !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("%s: got %v, want ErrNotHeld", name, err)
			}
		}
	}
	locked := world.mustLock(t)
	locked.Object().Name = "other"
	if err := world.guard.Update(t.Context(), locked); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("another object: got %v, want ErrInvalid", err)
	}
}

func TestGuardedDryRunChangesNothing(t *testing.T) {
	world := newGuardedWorld(settingsMap())
	locked := world.mustLock(t)
	locked.Object().Data["color"] = "green"
	if err := world.guard.Update(t.Context(), locked, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if err := world.guard.Patch(t.Context(), locked); err != nil {
		t.Fatal(err)
	}
	if got := world.color(t); got != "green" {
		t.Errorf("stored %q, want the change that was only tried before", got)
	}
}

func TestGuardedStatus(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	cluster := fake.NewClientBuilder().WithObjects(web).WithStatusSubresource(web).Build()
	guard := objectlock.NewWriter[*appsv1.Deployment](cluster)
	locked, err := objectlock.Acquire(t.Context(), lock.NewClient(locktest.New(), "default", lock.WithTTL(time.Minute)), cluster, web)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Release(t.Context()) }()
	locked.Object().Status.Replicas = 2
	if err := guard.UpdateStatus(t.Context(), locked); err != nil {
		t.Error(err)
	}
	locked.Object().Status.ReadyReplicas = 1
	if err := guard.PatchStatus(t.Context(), locked); err != nil {
		t.Error(err)
	}
	stored := &appsv1.Deployment{}
	if err := guard.Get(t.Context(), client.ObjectKeyFromObject(web), stored); err != nil || stored.Status.Replicas != 2 || stored.Status.ReadyReplicas != 1 {
		t.Errorf("stored %v, %v", stored.Status, err)
	}
}
