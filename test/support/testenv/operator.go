package testenv

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"forrst.dev/lock-operator/lock/engine"
)

// stopTimeout bounds how long a manager may take to stop, on a busy machine.
const stopTimeout = time.Minute

// NewManager returns a manager with the operator's identity and its permissions from config/.
func (e *Environment) NewManager(changes ...func(*ctrl.Options)) (ctrl.Manager, error) {
	return e.NewManagerFor(func(*rest.Config) {}, changes...)
}

// NewManagerFor is [Environment.NewManager] with a changed client configuration.
func (e *Environment) NewManagerFor(prepare func(*rest.Config), changes ...func(*ctrl.Options)) (ctrl.Manager, error) {
	operator, _, err := e.User(OperatorUser, OperatorGroups...)
	if err != nil {
		return nil, err
	}
	prepare(operator)
	skipNameValidation := true // suites start the same controller more than once in a process
	options := ctrl.Options{
		Scheme:                 e.Scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &skipNameValidation},
		// The informers keep of Locks what those of the operator do.
		Cache: cache.Options{NewInformer: engine.NewWatchStream(clock.RealClock{}, logr.Discard()).NewInformer},
	}
	for _, change := range changes {
		change(&options)
	}
	return ctrl.NewManager(operator, options)
}

// StartManager runs the manager until stop is called; stop waits for its end. The manager
// outlives ctx, which Ginkgo ends with each node.
func StartManager(ctx context.Context, manager ctrl.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	return func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(stopTimeout):
			return fmt.Errorf("the manager did not stop within %s", stopTimeout)
		}
	}
}
