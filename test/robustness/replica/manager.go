package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/controllers/jobgate"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	// operatorNamespace has the Lease.
	operatorNamespace = "forrst-system"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":lock-operator"
)

type settings struct {
	namespace string
	// address is that of the façade without authentication, tokenAddress that of the other one;
	// port 0 is any free one.
	address, tokenAddress string
	allowance             time.Duration
	// name is that of this replica, and peersFolder has the files for sharing lines with others at peersAddress. Without
	// a folder it has lines of its own.
	name, peersFolder, peersAddress string
}

// newManager wires the same components as cmd/lock-operator except the webhook, which the
// operator's own requests never reach. It also returns the addresses of the façades.
func newManager(config *rest.Config, settings settings, local clock.WithTicker, reports *reports) (ctrl.Manager, []string, error) {
	config.QPS = -1
	prober, err := newProber(config, settings.namespace, reports)
	if err != nil {
		return nil, nil, err
	}
	now := judgedBy(config, local)
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	stream := engine.NewWatchStream(now, ctrl.Log.WithName("lock-watch"))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		MapperProvider:         newRESTMapper,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			NewInformer:      stream.NewInformer,
		},
	})
	if err != nil {
		return nil, nil, err
	}
	locks, err := addEngine(manager, settings, now, stream, auditReports{reports})
	if err != nil {
		return nil, nil, err
	}
	if prober.leadership, err = addControllers(manager, settings, now, locks, auditReports{reports}); err != nil {
		return nil, nil, err
	}
	var backend lock.Backend = locks
	var peersAddress string
	if settings.peersFolder != "" {
		if backend, peersAddress, err = shareLines(manager, settings, now, locks); err != nil {
			return nil, nil, err
		}
	}
	addresses, err := addFacades(manager, settings, now, backend)
	return manager, append(addresses, peersAddress), errors.Join(err, addProber(manager, prober))
}

// judgedBy returns the clock by which locks are stamped and judged: an estimate of the API
// server's clock from its responses to the clients of config.
func judgedBy(config *rest.Config, local clock.WithTicker) clock.WithTicker {
	corrected := servertime.New(local)
	config.Wrap(apianswers.RoundTripper)
	config.Wrap(corrected.RoundTripper)
	return corrected
}

func addProber(manager ctrl.Manager, prober *prober) error {
	informer, err := informerOf(manager)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(prober.shows())
	return errors.Join(err, manager.Add(prober))
}

func informerOf(manager ctrl.Manager) (cache.Informer, error) {
	return manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
}

func addControllers(manager ctrl.Manager, settings settings, now clock.WithTicker, locks *engine.Engine, records audit.Sink) (*leadership.Election, error) {
	// Shorter than the product's, so the reaper changes replicas within a short test.
	election, err := leadership.NewElection(manager.GetConfig(), leadership.Options{
		Namespace: operatorNamespace, Name: "lock-operator.forrst.dev",
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if err := manager.Add(election); err != nil {
		return nil, err
	}
	gate := &jobgate.Reconciler{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Engine:     locks,
		Holder:     operatorUser,
		Limits:     rules.DefaultLimits(),
		Clock:      now,
		Leadership: election,
		Recorder:   manager.GetEventRecorder("lock-operator"),
	}
	return election, errors.Join(
		gate.SetupWithManager(manager),
		(&expiry.Reconciler{
			Client:             manager.GetClient(),
			ClockSkewAllowance: settings.allowance,
			Clock:              now,
			Leadership:         election,
			Audit:              records,
		}).SetupWithManager(manager),
		(&renewal.Reconciler{
			Client:             manager.GetClient(),
			LiveReader:         manager.GetAPIReader(),
			Clock:              now,
			Leadership:         election,
			MaxOperatorRenewal: rules.MaxExpireAhead,
			Audit:              records,
		}).SetupWithManager(manager),
		(&holders.Reconciler{
			Client:     manager.GetClient(),
			LiveReader: manager.GetAPIReader(),
			Clock:      now,
			Leadership: election,
			Events:     manager.GetEventRecorder("lock-operator"),
			Audit:      records,

			ReleasedElsewhere: gate.IsForJob,
		}).SetupWithManager(manager),
	)
}

// newRESTMapper returns a mapper that knows all that is used without asking the API server, as
// the operator's knows locks.
func newRESTMapper(*rest.Config, *http.Client) (apimeta.RESTMapper, error) {
	known := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion, corev1.SchemeGroupVersion, batchv1.SchemeGroupVersion})
	known.Add(v1alpha1.GroupVersion.WithKind("Lock"), apimeta.RESTScopeNamespace)
	known.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	known.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	known.Add(batchv1.SchemeGroupVersion.WithKind("Job"), apimeta.RESTScopeNamespace)
	return known, nil
}

// addEngine adds the engine that façades and controllers share.
func addEngine(manager ctrl.Manager, settings settings, now clock.WithTicker, stream *engine.WatchStream, records audit.Sink) (*engine.Engine, error) {
	objects, err := engine.NewObjectClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	informer, err := informerOf(manager)
	if err != nil {
		return nil, err
	}
	locks, err := engine.New(engine.Options{
		Objects:            objects.Locks,
		Informer:           informer,
		Stream:             stream,
		Audit:              records,
		Limits:             rules.DefaultLimits(),
		IsValidated:        true, // by the façade, as in the operator
		ClockSkewAllowance: settings.allowance,
		Clock:              now,
		Logger:             manager.GetLogger().WithName("lock-engine"),
	})
	if err != nil {
		return nil, err
	}
	return locks, manager.Add(locks)
}

// reviewTTL is how long an answer about a caller is remembered. It is shorter than the
// product's, so most calls of this test need an answer.
const reviewTTL = time.Second

// addFacades adds two façades: one authenticates its callers, one does not.
func addFacades(manager ctrl.Manager, settings settings, now clock.WithTicker, locks lock.Backend) ([]string, error) {
	reviews, err := auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{TokenTTL: reviewTTL, AllowTTL: reviewTTL, DenyTTL: reviewTTL})
	if err != nil {
		return nil, err
	}
	open, err := addFacade(manager, settings.address, testfacade.Settings{Locks: locks, Namespace: settings.namespace, Clock: now})
	if err != nil {
		return nil, err
	}
	guarded, err := addFacade(manager, settings.tokenAddress, testfacade.Settings{Locks: locks, Access: reviews, Clock: now})
	if err != nil {
		return nil, err
	}
	return []string{open, guarded}, nil
}

func addFacade(manager ctrl.Manager, address string, settings testfacade.Settings) (string, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return "", err
	}
	settings.Logger = manager.GetLogger().WithName("facade")
	settings.Holders = &holderref.Checker{Reader: manager.GetAPIReader(), Mapper: manager.GetRESTMapper()}
	settings.Server = server.Options{Listener: listener, DrainTimeout: time.Second, Logger: settings.Logger}
	facade, err := testfacade.New(settings)
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), manager.Add(facade)
}
