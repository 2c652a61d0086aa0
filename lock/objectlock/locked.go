package objectlock

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock"
)

// Locked proves that the lock of a Kubernetes object is held, and contains the object as it was
// read under the lock. Only [Acquire] makes one; the zero value proves nothing. Functions that
// must run under the lock should take a Locked instead of the object.
//
// A Locked is not safe for concurrent use, except for Held and Release.
type Locked[T client.Object] struct {
	held   *lock.Held
	reader client.Reader
	kind   schema.GroupVersionKind
	// object is the caller's to change; base is the last known state in the API server.
	object, base T
}

// Acquire acquires the lock of a Kubernetes object, see [Key], and then reads the object. Only the
// identity of the object that is passed counts; its other fields may be out of date.
//
// The reader must read from the API server: use a client from client.New, or the result of a
// manager's GetAPIReader. The client of a manager reads from a cache, which may not show the last
// writes of the former holder yet.
//
// The error is that of [lock.Client.Acquire], or that of the read, such as NotFound; the lock is
// then released, also if ctx has ended. That takes no longer than [lock.WithReleaseTimeout] permits.
func Acquire[T client.Object](ctx context.Context, locks *lock.Client, reader client.Reader, object T, options ...lock.Option) (*Locked[T], error) {
	if value := reflect.ValueOf(object); !value.IsValid() || value.IsNil() || object.GetName() == "" {
		return nil, fmt.Errorf("lock object: %w: %w", lock.ErrInvalid, errNoObject)
	}
	kind, err := kindOf(reader, object)
	if err != nil {
		return nil, fmt.Errorf("lock object: %w", err)
	}
	key := Key(kind.GroupKind(), client.ObjectKeyFromObject(object))
	held, err := locks.Acquire(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	locked := &Locked[T]{held: held, reader: reader, kind: kind, base: object}
	if err := locked.Refresh(ctx); err != nil {
		// The error of the read is more useful than one of the release.
		_ = held.Release(ctx)
		return nil, err
	}
	return locked, nil
}

// Held returns the lock.
func (l *Locked[T]) Held() *lock.Held { return l.held }

// Object returns the object as read under the lock or last written with it. The caller may change
// it; the methods of a [Writer] write the changes.
func (l *Locked[T]) Object() T { return l.object }

// Release ends the lock, as [lock.Held.Release] does. From then on the Locked proves nothing.
func (l *Locked[T]) Release(ctx context.Context) error {
	if l.held == nil {
		return errNoProof
	}
	return l.held.Release(ctx)
}

// Refresh reads the object again and drops changes that were not written. Call it after a
// conflict, which happens when another client writes without the lock, such as a controller that
// reports status.
//
// The error is that of the read, or matches that of [lock.Held.Err].
func (l *Locked[T]) Refresh(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	ctx, cancel := l.held.Bind(ctx)
	defer cancel()
	fresh, _ := reflect.TypeAssert[T](reflect.New(reflect.TypeOf(l.base).Elem()))
	fresh.GetObjectKind().SetGroupVersionKind(l.kind)
	if err := l.reader.Get(ctx, client.ObjectKeyFromObject(l.base), fresh); err != nil {
		return fmt.Errorf("read %s under its lock: %w", l.held.Key(), err)
	}
	if isOlder(fresh, l.base) {
		return fmt.Errorf("read %s under its lock: %w: the reader returned an older version than the known one; it must not read from a cache", l.held.Key(), lock.ErrInvalid)
	}
	l.accept(fresh)
	return nil
}

// check returns why the Locked proves nothing, or nil.
func (l *Locked[T]) check() error {
	if l == nil || l.held == nil {
		return errNoProof
	}
	return l.held.Err()
}

// accept stores the object as the known state in the API server.
func (l *Locked[T]) accept(object T) {
	l.object = object
	l.base, _ = object.DeepCopyObject().(T)
}

// errNoProof refuses a Locked that Acquire did not make.
var errNoProof = fmt.Errorf("the Locked was not made by objectlock.Acquire: %w", lock.ErrNotHeld)

// isOlder reports whether the first is certainly an earlier state of the same object.
func isOlder(first, second client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(first.GetResourceVersion(), second.GetResourceVersion())
	return err == nil && order < 0 && first.GetUID() == second.GetUID()
}
