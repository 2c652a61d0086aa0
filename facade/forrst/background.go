package forrst

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
)

// background is what goes on after the calls that it was begun for. It implements
// [forward.Background].
type background struct {
	// ctx ends when everything must come to an end.
	ctx  context.Context // It belongs to no call.
	stop context.CancelFunc
	// logger gets panics.
	logger logr.Logger

	mu      sync.Mutex
	running int
	// idle is closed when nothing runs any more. Nil while wait is not called.
	idle chan struct{}
}

func newBackground(logger logr.Logger) *background {
	b := &background{logger: logger}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Run calls function in a goroutine that [background.wait] waits for. The context ends when
// the function must return.
func (b *background) Run(function func(ctx context.Context)) {
	b.mu.Lock()
	b.running++
	b.mu.Unlock()
	go func() {
		defer b.end()
		defer func() {
			if cause := recover(); cause != nil {
				// As the server does for calls.
				b.logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic", "stack", string(debug.Stack()))
			}
		}()
		function(b.ctx)
	}()
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait waits until nothing runs. It reports false if ctx ends before.
func (b *background) wait(ctx context.Context) bool {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return true
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}

// Drain waits until routed functions are over whose callers have gone, and the locks around
// them released. When ctx ends it waits no longer: the remaining locks are left until the
// timeouts of their routes. [Server] calls it when all calls have ended.
func (h *Handler) Drain(ctx context.Context) {
	if h.background.wait(ctx) {
		return
	}
	h.config.Logger.Info("Functions are still running in other services, and their locks are left until the timeouts of their routes")
	h.background.stop()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	h.background.wait(cleanup)
}

// finishWork has a handler finish what goes on after its calls.
func (s *Server) finishWork(ctx context.Context) {
	if handler, ok := s.Handler.(interface{ Drain(context.Context) }); ok {
		handler.Drain(ctx)
	}
}
