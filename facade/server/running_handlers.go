package server

import (
	"context"
	"net/http"
	"sync"
)

// runningHandlers counts the requests that a handler is busy with. A connection can end
// before the handlers of its requests do.
type runningHandlers struct {
	handler http.Handler

	mu    sync.Mutex
	count int
	// none is closed when the last one ends. Nil unless [runningHandlers.wait] waits for it.
	none chan struct{}
}

// ServeHTTP implements [http.Handler].
func (h *runningHandlers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.add(1)
	defer h.add(-1)
	h.handler.ServeHTTP(w, r)
}

func (h *runningHandlers) add(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count += change
	if h.count == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// wait waits until no handler runs.
func (h *runningHandlers) wait(ctx context.Context) error {
	select {
	case <-h.ended():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *runningHandlers) ended() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	none := h.none
	if none == nil {
		none = make(chan struct{})
	}
	if h.count == 0 {
		close(none)
		return none
	}
	h.none = none
	return none
}
