package objectlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Writer writes objects of a type only under their locks: Update, Patch and Delete take a [Locked]
// instead of an object. Pass it instead of the client to code that writes, and the compiler finds
// the writes without a lock. Reading and creating need no lock. Safe for concurrent use.
//
// Every write
//
//   - is refused with the error of [lock.Held.Err] if the lock has ended, and cancelled if
//     it ends meanwhile,
//   - is conditional on the resourceVersion that was read: a write that arrives after the
//     lock has ended cannot undo a later one, and fails with a Conflict,
//   - updates the Locked, which can then be used for the next write; after a Delete that finalizers keep
//     from its end, [Locked.Refresh] does.
//
// Update and Patch also present the fencing token, as [v1alpha1.FencingTokenAnnotation], if the object
// is fenced by its lock, see [v1alpha1.FencedByAnnotation] with the [Key] of the object.
type Writer[T client.Object] struct {
	client.Reader
	writer client.Client
}

// NewWriter returns the writer of a type. Reads without a lock use the same client, and may come
// from a cache.
func NewWriter[T client.Object](writer client.Client) *Writer[T] {
	return &Writer[T]{Reader: writer, writer: writer}
}

// Create creates an object. It needs no lock: only one of several creates can succeed.
func (g *Writer[T]) Create(ctx context.Context, object T, options ...client.CreateOption) error {
	return g.writer.Create(ctx, object, options...)
}

// Update writes the whole object of the Locked.
func (g *Writer[T]) Update(ctx context.Context, locked *Locked[T], options ...client.UpdateOption) error {
	return locked.write(ctx, "update", func(ctx context.Context, object T) error {
		locked.presentToken(object)
		return g.writer.Update(ctx, object, options...)
	})
}

// UpdateStatus writes the status of the object of the Locked.
func (g *Writer[T]) UpdateStatus(ctx context.Context, locked *Locked[T], options ...client.SubResourceUpdateOption) error {
	return locked.write(ctx, "update the status of", func(ctx context.Context, object T) error {
		return g.writer.Status().Update(ctx, object, options...)
	})
}

// Patch writes the changes to the object of the Locked since it was read.
func (g *Writer[T]) Patch(ctx context.Context, locked *Locked[T], options ...client.PatchOption) error {
	return locked.write(ctx, "patch", func(ctx context.Context, object T) error {
		locked.presentToken(object)
		return g.writer.Patch(ctx, object, locked.changes(), options...)
	})
}

// PatchStatus writes the changes to the status of the object of the Locked since it was read.
func (g *Writer[T]) PatchStatus(ctx context.Context, locked *Locked[T], options ...client.SubResourcePatchOption) error {
	return locked.write(ctx, "patch the status of", func(ctx context.Context, object T) error {
		return g.writer.Status().Patch(ctx, object, locked.changes(), options...)
	})
}

// Delete deletes the object of the Locked. The lock stays until it is released.
func (g *Writer[T]) Delete(ctx context.Context, locked *Locked[T], options ...client.DeleteOption) error {
	return locked.guard(ctx, "delete", func(ctx context.Context) error {
		uid, version := locked.base.GetUID(), locked.base.GetResourceVersion()
		// Last: no option can override the condition.
		conditions := client.Preconditions(metav1.Preconditions{UID: &uid, ResourceVersion: &version})
		return g.writer.Delete(ctx, locked.base, append(slices.Clip(options), conditions)...)
	})
}

// changes returns the patch with the caller's changes.
func (l *Locked[T]) changes() client.Patch {
	return client.MergeFromWithOptions(l.base, client.MergeFromWithOptimisticLock{})
}

// presentToken sets the fencing token of the lock if the object is fenced by it.
func (l *Locked[T]) presentToken(object T) {
	annotations := object.GetAnnotations()
	key, isFenced := annotations[v1alpha1.FencedByAnnotation]
	if isFenced && v1alpha1.FullKeyOf(key) == l.held.Key() {
		annotations[v1alpha1.FencingTokenAnnotation] = strconv.FormatInt(l.held.FencingToken(), 10)
		object.SetAnnotations(annotations)
	}
}

// write sends a copy of the object, conditional on the version that was read, and stores the
// answer. If it fails, the caller's changes stay.
func (l *Locked[T]) write(ctx context.Context, verb string, send func(context.Context, T) error) error {
	return l.guard(ctx, verb, func(ctx context.Context) error {
		object, _ := l.object.DeepCopyObject().(T)
		if client.ObjectKeyFromObject(object) != client.ObjectKeyFromObject(l.base) || object.GetUID() != l.base.GetUID() {
			return fmt.Errorf("%w: the name or the UID was changed to that of another object, which this lock does not cover", lock.ErrInvalid)
		}
		object.GetObjectKind().SetGroupVersionKind(l.kind)
		object.SetResourceVersion(l.base.GetResourceVersion())
		if err := send(ctx, object); err != nil {
			return err
		}
		// A dry run leaves the version, and the API server, as they were.
		if object.GetResourceVersion() != l.base.GetResourceVersion() {
			l.accept(object)
		}
		return nil
	})
}

// guard runs a write under the lock.
func (l *Locked[T]) guard(ctx context.Context, verb string, write func(context.Context) error) error {
	if err := l.check(); err != nil {
		return fmt.Errorf("%s an object under its lock: %w", verb, err)
	}
	bound, cancel := l.held.Bind(ctx)
	defer cancel()
	err := write(bound)
	if err == nil {
		return nil
	}
	if loss := l.held.Err(); loss != nil && ctx.Err() == nil && bound.Err() != nil {
		err = fmt.Errorf("%w: %w", loss, err)
	}
	return fmt.Errorf("%s %s under its lock: %w", verb, l.held.Key(), err)
}
