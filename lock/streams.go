package lock

import (
	"context"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// StreamBuffer is how many changes the receiver of a [Stream] may be behind.
const StreamBuffer = 256

// Streamer is a [Backend] that shows every state of its locks, where [Backend.Watch] may skip some.
type Streamer interface {
	// Stream shows the locks of a namespace or, unless the key is empty, one lock. An empty namespace, with an
	// empty key, means the locks of all namespaces. The error matches
	// [errors.ErrUnsupported] if the backend cannot watch, and [ErrUnavailable] if it has ended.
	Stream(ctx context.Context, namespace string, key v1alpha1.FullKey) (Stream, error)
}

// Stream is the present state of locks and their changes from then on. What it shows must not be
// modified, and may be behind what the caller knows already: compare resourceVersions.
type Stream struct {
	// Present are the locks that are stored, in no order. Some may have expired.
	Present []*v1alpha1.Lock
	// Version is the latest resourceVersion that the backend has seen of any lock. Empty if none.
	Version string
	// Changes has each later state of each lock, in order. It is closed when the context or the backend
	// ends, and when its receiver is too far behind and has to begin again.
	Changes <-chan Change
}
