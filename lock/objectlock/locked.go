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

// Locked is the proof that the lock of a Kubernetes object is held, together with the
// object as it was read under the lock. Only [Acquire] makes one; the zero value
// proves nothing. A function that must only be called under the lock asks for a
// Locked instead of the object.
//
// A Locked is not safe for concurrent use, except for Held and Release.
type Locked[T client.Object] struct {
	held   *lock.Held
	reader client.Reader
	kind   schema.GroupVersionKind
	// object is for the caller to change; base is what the API server has, as far as
	// is known.
	object, base T
}

// Acquire acquires the lock of a Kubernetes object, see [Key], and then reads
// the object. Of the object that is passed only the identity counts; what was read of
// it before the grant may be out of date.
//
// The reader must ask the API server: a client from client.New, or what GetAPIReader of
// a manager returns. The client of a manager reads from a cache, which may not have
// seen yet what the former holder wrote.
//
// The error is that of [lock.Client.Acquire], or that of the read, such as NotFound; the
// lock is then released.
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
		// The error of the read says more than one of the release could.
		_ = held.Release(ctx)
		return nil, err
	}
	return locked, nil
}

// Held returns the lock.
func (l *Locked[T]) Held() *lock.Held { return l.held }

// Object returns the object as read under the lock or last written with it. It is the
// caller's to change; the methods of a [Writer] write the changes.
func (l *Locked[T]) Object() T { return l.object }

// Release ends the lock, as [lock.Held.Release] does. From then on the Locked proves nothing.
func (l *Locked[T]) Release(ctx context.Context) error {
	if l.held == nil {
		return errNoProof
	}
	return l.held.Release(ctx)
}

// Refresh reads the object again and drops changes that were not written. It is the
// answer to a conflict, which happens where others write without the lock, for example
// a controller that reports status.
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
		return fmt.Errorf("read %s under its lock: %w: the reader is behind what was known before, as a cache is", l.held.Key(), lock.ErrInvalid)
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

// accept takes over what the API server has.
func (l *Locked[T]) accept(object T) {
	l.object = object
	l.base, _ = object.DeepCopyObject().(T)
}

// errNoProof refuses a Locked that Acquire did not make.
var errNoProof = fmt.Errorf("a Locked that is not from objectlock.Acquire: %w", lock.ErrNotHeld)

// isOlder reports whether the first is known to be an earlier state of the same
// object.
func isOlder(first, second client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(first.GetResourceVersion(), second.GetResourceVersion())
	return err == nil && order < 0 && first.GetUID() == second.GetUID()
}
