package forrst

import (
	"context"
	"errors"
	"sync"
	"time"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// work is a function that runs elsewhere inside a lock that ends with it. It may go on
// when its call is over. It is safe for concurrent use.
type work struct {
	// ctx ends when the function is over, or when the server stops for good.
	ctx    context.Context // It belongs to the function, not to the call.
	cancel context.CancelFunc
	// deadline is when the function is over whatever happens.
	deadline time.Time
	// exchanged is closed when the service is not waited for any more.
	exchanged chan struct{}
	// kept is closed when the lock is not renewed any more. From then on what follows does
	// not change.
	kept chan struct{}
	// lost says what became of the lock if it is known not to be held.
	lost error
	// expiry is when the lock ends.
	expiry time.Time

	mu sync.Mutex
	// isOver says that the function is over.
	isOver bool
	// isAbandoned says that the call has ended before, and the lock is left to the keeper.
	isAbandoned bool
}

// finish says that the function is over.
func (w *work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isOver = true
	w.cancel()
}

// isFinished reports whether the function is over, and whether its call had ended before.
func (w *work) isFinished() (isOver, isAbandoned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isOver, w.isAbandoned
}

// abandon leaves the lock to the keeper unless the function is over.
func (w *work) abandon() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isAbandoned = !w.isOver
	return w.isAbandoned
}

// lossIn says what became of a lock whose end came to err, or "" if it lasted until
// then.
func (w *work) lossIn(err error, now time.Time) string {
	switch {
	case errors.Is(err, lock.ErrExpired):
		return wire.LostExpired
	case errors.Is(err, lock.ErrOwnerMismatch):
		return wire.LostTaken
	case errors.Is(err, lock.ErrNotHeld):
		return wire.LostReleased
	case err != nil && !now.Before(w.expiry):
		return wire.LostUnknown
	}
	return ""
}
