package main

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// sdkClient is a goroutine of a Go program that uses the SDK as an ordinary user.
type sdkClient struct {
	client *lock.Client
	held   *lock.Held
}

// newSDK starts the SDK's engine, which the contender's stop ends.
func newSDK(ctx context.Context, config *rest.Config) (contender, error) {
	engine, err := engine.NewDirect(config, namespace, logr.Discard())
	if err != nil {
		return contender{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = engine.Start(ctx) // without the engine, acquires fail and say why
	}()
	stop := func() {
		cancel()
		<-ended
	}
	client := lock.NewClient(engine, namespace, lock.WithTTL(ttl))
	open := func(context.Context, int) (locker, error) { return &sdkClient{client: client}, nil }
	return contender{name: sdkName, resource: "locks", open: open, stop: stop}, nil
}

func (s *sdkClient) acquire(ctx context.Context, key string) (err error) {
	s.held, err = s.client.Acquire(ctx, key)
	return err
}

func (s *sdkClient) release(ctx context.Context, _ string) error { return s.held.Release(ctx) }

func (s *sdkClient) close() {}
