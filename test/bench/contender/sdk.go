package contender

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/test/bench/measure"
)

// sdkClient is a goroutine of a Go program that uses the SDK as an ordinary user.
type sdkClient struct {
	client *lock.Client
	held   *lock.Held
}

// SDKName is the name of the SDK among contenders.
const SDKName = "SDK, direct"

// NewSDK starts the SDK's engine, which the contender's stop ends.
func NewSDK(ctx context.Context, config *rest.Config) (measure.Contender, error) {
	engine, err := engine.NewDirect(config, Namespace, logr.Discard())
	if err != nil {
		return measure.Contender{}, err
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
	client := lock.NewClient(engine, Namespace, lock.WithTTL(TTL))
	open := func(context.Context, int) (measure.Locker, error) { return &sdkClient{client: client}, nil }
	return measure.Contender{Name: SDKName, Resource: "locks", Open: open, Stop: stop}, nil
}

// Acquire implements [measure.Locker].
func (s *sdkClient) Acquire(ctx context.Context, key string) (err error) {
	s.held, err = s.client.Acquire(ctx, key)
	return err
}

// Release implements [measure.Locker].
func (s *sdkClient) Release(ctx context.Context, _ string) error { return s.held.Release(ctx) }

// Close implements [measure.Locker].
func (s *sdkClient) Close() {}
