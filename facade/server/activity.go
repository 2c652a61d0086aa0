package server

import (
	"context"
	"net/http"
	"sync"
)

// activity counts what is running. It is safe for concurrent use.
type activity struct {
	mu      sync.Mutex
	running int
	// idle is closed when the last one ends. Nil unless [activity.wait] waits for it.
	idle chan struct{}
}

func (a *activity) add(change int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running += change
	if a.running == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// wait waits until nothing runs. The error is that of ctx.
func (a *activity) wait(ctx context.Context) error {
	a.add(1)
	a.mu.Lock()
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	a.add(-1)
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counting counts the requests that the handler is busy with: a connection can end before the handlers of its requests do.
func (a *activity) counting(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.add(1)
		defer a.add(-1)
		handler.ServeHTTP(w, r)
	})
}
