package server

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
)

// Background runs what outlives the calls that it was begun for. It is safe for concurrent
// use.
type Background struct {
	activity

	ctx    context.Context // It belongs to no call.
	stop   context.CancelFunc
	logger logr.Logger
}

func newBackground(logger logr.Logger) *Background {
	b := &Background{logger: logger}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Run runs f in a goroutine that the server waits for when it stops. Its context ends when f
// must return soon. A panic of f is logged.
func (b *Background) Run(f func(ctx context.Context)) {
	b.add(1)
	go func() {
		defer b.add(-1)
		defer func() {
			if cause := recover(); cause != nil {
				b.logger.Error(fmt.Errorf("panic: %v", cause), "Recovered from a panic", "stack", string(debug.Stack()))
			}
		}()
		f(b.ctx)
	}()
}
