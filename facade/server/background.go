package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
)

// Background runs what outlives the calls that it was begun for. It is safe for concurrent
// use.
type Background struct {
	ctx    context.Context // It belongs to no call.
	stop   context.CancelFunc
	logger logr.Logger

	mu      sync.Mutex
	running int
	// idle is closed when the last function has returned. Nil unless [Background.wait] waits for it.
	idle chan struct{}
}

func newBackground(logger logr.Logger) *Background {
	b := &Background{logger: logger}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Run runs f in a goroutine that the server waits for when it stops. Its context ends when f
// must return soon. A panic of f is logged.
func (b *Background) Run(f func(ctx context.Context)) {
	b.mu.Lock()
	b.running++
	b.mu.Unlock()
	go func() {
		defer b.end()
		defer func() {
			if cause := recover(); cause != nil {
				b.logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic", "stack", string(debug.Stack()))
			}
		}()
		f(b.ctx)
	}()
}

func (b *Background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait waits until nothing runs. It reports false if ctx ends before.
func (b *Background) wait(ctx context.Context) bool {
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
