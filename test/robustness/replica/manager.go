package main

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/testfacade"
)

type settings struct {
	namespace string
	allowance time.Duration
}

// newManager wires the same components as cmd/lock-operator except the webhook, which the
// operator's own requests never reach. It also returns the address of the façade.
func newManager(config *rest.Config, settings settings, local clock.WithTicker) (ctrl.Manager, string, error) {
	config.QPS = -1
	now := judgedBy(config, local)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, "", err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return nil, "", err
	}
	if err := addReaper(manager, settings, now); err != nil {
		return nil, "", err
	}
	address, err := addFacade(manager, settings, now)
	return manager, address, err
}

// judgedBy returns the clock by which locks are stamped and judged: an estimate of the API
// server's clock from its responses to the clients of config.
func judgedBy(config *rest.Config, local clock.WithTicker) clock.WithTicker {
	corrected := servertime.New(local)
	config.Wrap(corrected.RoundTripper)
	return corrected
}

func addReaper(manager ctrl.Manager, settings settings, now clock.PassiveClock) error {
	// Shorter than the product's, so the reaper changes replicas within a short test.
	leadership, err := leadership.NewElection(manager.GetConfig(), leadership.Options{
		Namespace: "forrst-system", Name: "lock-operator.forrst.dev",
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	if err := manager.Add(leadership); err != nil {
		return err
	}
	return (&expiry.Reconciler{
		Client:             manager.GetClient(),
		LiveReader:         manager.GetAPIReader(),
		ClockSkewAllowance: settings.allowance,
		Clock:              now,
		Leadership:         leadership,
	}).SetupWithManager(manager)
}

func addFacade(manager ctrl.Manager, settings settings, now clock.WithTicker) (string, error) {
	objects, err := engine.NewObjectClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return "", err
	}
	informer, err := manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	if err != nil {
		return "", err
	}
	engine, err := engine.New(engine.Options{
		Objects:            objects.Locks,
		Informer:           informer,
		Limits:             rules.DefaultLimits(),
		IsValidated:        true, // by the façade, as in the operator
		ClockSkewAllowance: settings.allowance,
		Clock:              now,
		Logger:             manager.GetLogger().WithName("lock-engine"),
	})
	if err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	logger := manager.GetLogger().WithName("facade")
	facade, err := testfacade.New(testfacade.Settings{
		Locks:     engine,
		Namespace: settings.namespace,
		Clock:     now,
		Logger:    logger,
		Server:    server.Options{Listener: listener, DrainTimeout: time.Second, Logger: logger},
	})
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), errors.Join(manager.Add(engine), manager.Add(facade))
}
