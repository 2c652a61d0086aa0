package main

import (
	"context"
	"errors"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/engine"
)

// facadeWithEngine serves while the caches of the manager fill: what decides about a lock is etcd. A
// manager starts most of what it runs only after its caches, and stops it before them. So the façade is two of
// its runnables, of which the first to start begins to serve, and the first to end stops it.
type facadeWithEngine struct {
	server *server.Server
	engine *engine.Engine
	// shared is nil if each replica has lines of its own.
	shared *sharedLine

	begin sync.Once
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

func (f *facadeWithEngine) addTo(to ctrl.Manager) error {
	f.ended = make(chan struct{})
	return errors.Join(to.Add(beforeCaches{f, to.GetCache()}), to.Add(f))
}

// beforeCaches is started at the same time as the cache that it tells of.
type beforeCaches struct {
	manager.Runnable

	with cache.Cache
}

// GetCache is what the manager tells caches by.
func (b beforeCaches) GetCache() cache.Cache { return b.with }

// Start implements manager.Runnable.
func (f *facadeWithEngine) Start(ctx context.Context) error {
	f.begin.Do(func() {
		var serving context.Context
		serving, f.stop = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // called below, when either ends
		go func() {
			defer close(f.ended)
			f.err = f.serve(serving)
		}()
	})
	forget := context.AfterFunc(ctx, f.stop)
	defer forget()
	<-f.ended
	return f.err
}

// serve stops the façade before the engine, which the calls that are still running need. The façade ends with the
// shared line, too: see [sharedLine.Start].
func (f *facadeWithEngine) serve(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	ended := make(chan error, 2)
	go func() { ended <- f.engine.Start(engineCtx) }()
	go func() {
		if f.shared == nil {
			ended <- nil
			return
		}
		err := f.shared.Start(engineCtx)
		end()
		ended <- err
	}()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	drained := context.AfterFunc(ctx, func() {
		defer stop()
		f.drain(serving)
	})
	defer drained()
	err := f.server.Start(serving)
	stopEngine()
	return errors.Join(err, <-ended, <-ended)
}

// drainLineTimeout bounds how long the callers that wait may take to move to other replicas.
const drainLineTimeout = 2 * time.Second

// drain moves those that wait to other replicas, before the façade tells its own callers to go there.
func (f *facadeWithEngine) drain(ctx context.Context) {
	if f.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainLineTimeout)
	defer cancel()
	f.shared.Drain(ctx)
}

// NeedLeaderElection is false: every replica serves its own callers.
func (f *facadeWithEngine) NeedLeaderElection() bool { return false }
