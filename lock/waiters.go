package lock

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Waiter is a caller that waits for a lock.
type Waiter struct {
	Namespace string
	// Scope, Function and Key identify the lock, see [v1alpha1.LockSpec].
	Scope    v1alpha1.Scope
	Function string
	Key      string
	// Place is 1 for the caller that gets the lock next.
	Place int
	// Priority is that of the request, see [Request].
	Priority int32
	// Holder is the authenticated identity that waits. HolderRef is the object that it wants the lock for, or
	// nil, and Reason says what for.
	Holder    string
	HolderRef *v1alpha1.HolderReference
	Reason    string
	// Door is how the caller came, such as "rest". Empty if it is not known.
	Door string
	// Since is when it came.
	Since time.Time
	// Until is when its wait ends. Zero means that only the caller ends it.
	Until time.Time
}

// FullKey returns the full key of the lock.
func (w *Waiter) FullKey() v1alpha1.FullKey { return v1alpha1.NewFullKey(w.Scope, w.Function, w.Key) }

// LineReader is a [Backend] that knows who waits.
type LineReader interface {
	// Waiters returns the callers that wait for a lock, in the order in which they get it, or those of all
	// locks of the namespace if key is empty, by key and place. An empty namespace, with an empty key, means all
	// namespaces. They may have left since. They are not complete if more wait than limit, or than one message of
	// another replica has room for: then they are the first of each replica that was asked.
	// The error matches [ErrUnavailable] if a part of the line could not be asked.
	Waiters(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (waiters []Waiter, isComplete bool, err error)
}

// LineCounter is a [Backend] that knows how many wait.
type LineCounter interface {
	// Lines returns how many callers wait for a lock, or for each of the namespace if key is empty, in no order.
	// An empty namespace, with an empty key, means all namespaces. A lock that no caller waits for has no line.
	// They are not complete, but any, if they are more than limit, or than one message of another replica has room
	// for. The error matches [ErrUnavailable] if a part of the lines could not be asked.
	Lines(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (lines []Line, isComplete bool, err error)
}

// LineHome is a [LineCounter] that has some of the lines, and asks other replicas about those that it has not.
type LineHome interface {
	LineCounter
	// IsHome reports whether the line of a lock is here, as far as is known.
	IsHome(namespace string, key v1alpha1.FullKey) bool
}

// Line tells how many callers wait for a lock.
type Line struct {
	Namespace string
	// Scope, Function and Key identify the lock, see [v1alpha1.LockSpec].
	Scope    v1alpha1.Scope
	Function string
	Key      string
	// Waiting is at least 1.
	Waiting int
}

// FullKey returns the full key of the lock.
func (l *Line) FullKey() v1alpha1.FullKey { return v1alpha1.NewFullKey(l.Scope, l.Function, l.Key) }
