package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/controllers/expiry"
	"forrst.dev/lock-operator/controllers/holders"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/renewal"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/auditlog"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/lock/usage"
	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/guard"
	"forrst.dev/lock-operator/webhook/server"
)

// cacheCheckTimeout bounds one readiness check of the cache.
const cacheCheckTimeout = time.Second

// maxOperatorRenewals is how many locks of a namespace the operator renews. With the shortest ttl, they take 25 writes a
// second.
const maxOperatorRenewals = 500

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
}

func newManager(ctx context.Context, config *rest.Config, settings options) (ctrl.Manager, error) {
	// The API server's priority and fairness limits us; a client-side limit would
	// make locks wait in their own queue.
	config.QPS = -1
	// Every client of the process is made from config, so any of their responses
	// tells the API server's time.
	now := servertime.New(clock.RealClock{})
	config.Wrap(apianswers.RoundTripper)
	config.Wrap(now.RoundTripper)
	config.Wrap(settings.tracer.RoundTripper)
	var err error
	if settings.metrics, err = observeProcess(config, now); err != nil {
		return nil, err
	}
	settings.lockWatch = engine.NewWatchStream(now, ctrl.Log.WithName("lock-watch"))
	if settings.facadeAuth.mode == authNone {
		settings.facadeServer.withoutShares()
	}
	stopTimeout := settings.stopTimeout()
	managerOptions := ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // See addMetricsPort.
		HealthProbeBindAddress:  settings.probeAddr,
		GracefulShutdownTimeout: &stopTimeout,
		MapperProvider:          newRESTMapper,
		Cache: cache.Options{
			DefaultTransform: transform,
			NewInformer:      settings.lockWatch.NewInformer,
		},
	}
	if settings.runs(webhookComponent) {
		if managerOptions.WebhookServer, err = settings.webhook.newServer(); err != nil {
			return nil, err
		}
	}
	manager, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}

	if err := settings.learnIdentity(ctx, manager); err != nil {
		return nil, err
	}
	if err := addMetricsPort(ctx, manager, settings, now); err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	settings.events = lockevents.Bounded(manager.GetEventRecorder("lock-operator"), now.Local())
	// A forced release through façade or webhook emits an Event besides its record.
	settings.audit = auditlog.WithEvents(manager.GetEventRecorder("lock-operator"), settings.audit)
	add := map[string]func(ctrl.Manager, options, *servertime.Clock) error{
		controllerComponent: addControllers,
		webhookComponent:    addWebhook,
		facadeComponent:     addFacade,
	}
	for component, add := range add {
		if !settings.runs(component) {
			continue
		}
		if err := add(manager, settings, now); err != nil {
			return nil, fmt.Errorf("set up the %s: %w", component, err)
		}
	}
	if settings.runs(webhookComponent) || !settings.runs(facadeComponent) {
		// The façade alone serves without: it needs the cache only to spare requests.
		err = manager.AddReadyzCheck("cache", cacheCheck(manager.GetCache()))
	}
	return manager, errors.Join(err, manager.AddHealthzCheck("ping", healthz.Ping))
}

// transform leaves out of the cache what no component reads.
func transform(object any) (any, error) {
	stripped, err := renewal.StripNamespace(object)
	if err != nil {
		return nil, err
	}
	return cache.TransformStripManagedFields()(stripped)
}

func addControllers(manager ctrl.Manager, settings options, now *servertime.Clock) error {
	election := leadership.Always()
	if settings.leaderElect {
		var err error
		election, err = leadership.NewElection(manager.GetConfig(), leadership.Options{
			Namespace: settings.leaderElectionNamespace,
			Name:      "lock-operator.forrst.dev",
		})
		if err != nil {
			return err
		}
	}
	if err := manager.Add(election); err != nil {
		return err
	}
	if err := addIssuer(manager, settings, now, election); err != nil {
		return err
	}
	jobReconciler, err := addJobGate(manager, settings, now, election)
	if err != nil {
		return err
	}
	expiry := &expiry.Reconciler{
		Client:             manager.GetClient(),
		ClockSkewAllowance: settings.clockSkewAllowance,
		Clock:              now,
		Leadership:         election,
		Audit:              settings.audit,
		Events:             &lockevents.Reporter{Recorder: settings.events},
	}
	if err := expiry.SetupWithManager(manager); err != nil {
		return err
	}
	if err := metric.Register(metrics.Registry, expiry, leading(election)); err != nil {
		return err
	}
	renewals := &renewal.Reconciler{
		Client:             manager.GetClient(),
		LiveReader:         manager.GetAPIReader(),
		Clock:              now,
		Leadership:         election,
		MaxOperatorRenewal: settings.maxOperatorRenewal,
		Audit:              settings.audit,
		Events:             &lockevents.Reporter{Recorder: settings.events},
	}
	if err := renewals.SetupWithManager(manager); err != nil {
		return err
	}
	if err := metric.Register(metrics.Registry, renewals); err != nil {
		return err
	}
	return (&holders.Reconciler{
		Client:            manager.GetClient(),
		LiveReader:        manager.GetAPIReader(),
		Clock:             now,
		Leadership:        election,
		Events:            settings.events,
		Audit:             settings.audit,
		Kinds:             settings.holderKinds,
		ReleasedElsewhere: jobReconciler.IsForJob,
	}).SetupWithManager(manager)
}

func addWebhook(manager ctrl.Manager, settings options, now *servertime.Clock) error {
	// Without an informer from the start, the first admission would wait for one.
	informer, err := lockInformer(manager)
	if err != nil {
		return err
	}
	records := webhook.NewAudit(settings.audit, now)
	records.SetupDeletionAudit(manager)
	if port, ok := manager.GetWebhookServer().(*server.Server); ok {
		port.OnRefused(records.Unjudged)
	}
	authorizer, err := auth.NewAuthorizer(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return err
	}
	exemption, err := webhook.NewExemption(webhook.ExemptionOptions{
		LockUsers:  slices.Compact(slices.Sorted(slices.Values([]string{settings.operatorUser, settings.facadeUser, settings.controllersUser}))),
		JobUser:    settings.controllersUser,
		Reader:     manager.GetAPIReader(),
		Clock:      now,
		Registerer: metrics.Registry,
		Logger:     manager.GetLogger().WithName("webhook"),
	})
	if err != nil {
		return err
	}
	lockBound, operatorRenewals, err := boundLocks(informer, settings.maxLocks)
	if err != nil {
		return err
	}
	jobBound, err := webhook.CountJobs(manager, settings.maxJobs)
	if err != nil {
		return err
	}
	err = metric.Register(metrics.Registry,
		metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "locks_per_namespace"}, lockBound.Fullest),
		metric.LimitUsage.GaugeFunc(prometheus.Labels{"limit": "jobs_per_namespace"}, jobBound.Fullest))
	if err != nil {
		return err
	}
	(&webhook.LockAdmission{
		Tracer: settings.tracer,
		Client: manager.GetClient(), LiveReader: manager.GetAPIReader(),
		Limits:             settings.limits,
		MaxOperatorRenewal: settings.maxOperatorRenewal, OperatorRenewals: operatorRenewals,
		ClockSkewAllowance: settings.clockSkewAllowance,
		Clock:              now,
		Audit:              records,
		Authorizer:         authorizer,
		IsGuarding:         settings.guards,
		Bound:              lockBound,
		HolderKinds:        settings.holderKinds,
		Exemption:          exemption,
	}).SetupWithManager(manager)
	(&webhook.JobAdmission{
		Limits: jobs.Limits{MinTTL: min(jobs.DefaultMinTTL, settings.limits.MaxTTL), MaxTTL: settings.limits.MaxTTL},
		Clock:  now,
		Bound:  jobBound,
		Audit:  records, Tracer: settings.tracer,
		Authorizer: authorizer,
		Exemption:  exemption,
	}).SetupWithManager(manager)
	if !settings.runs(controllerComponent) && !settings.runs(facadeComponent) {
		// No other component follows the watch of locks, on which guards and decisions about expired
		// locks rely: whether it is alive, and whether it has lost a change.
		follower, err := newEngine(manager, settings, now, "webhook-lock-watch", audit.Controller)
		if err != nil {
			return err
		}
		if err := manager.Add(follower); err != nil {
			return err
		}
	}
	if settings.guards {
		if err := addGuards(manager, settings, now); err != nil {
			return err
		}
	}
	return errors.Join(
		manager.Add(exemption),
		manager.AddReadyzCheck("webhook", manager.GetWebhookServer().StartedChecker()),
	)
}

// boundLocks returns bounds on the locks of a namespace that the informer shows: on all, and on those that the
// operator renews.
func boundLocks(informer cache.Informer, most int) (all, renewed *usage.Bound, err error) {
	all = usage.NewBound(most)
	if _, err := informer.AddEventHandler(all); err != nil {
		return nil, nil, fmt.Errorf("count locks: %w", err)
	}
	renewed, err = webhook.CountOperatorRenewals(informer, maxOperatorRenewals)
	return all, renewed, err
}

// addGuards adds the admission of the objects that locks guard.
func addGuards(manager ctrl.Manager, settings options, now clock.PassiveClock) error {
	if err := guard.AddIndex(context.Background(), manager.GetFieldIndexer()); err != nil {
		return err
	}
	return (&guard.Admission{
		Tracer:       settings.tracer,
		Locks:        manager.GetCache(),
		LiveReader:   manager.GetAPIReader(),
		Mapper:       manager.GetRESTMapper(),
		Clock:        now,
		OperatorUser: settings.controllersUser,
		Audit:        settings.audit,

		ClockSkewAllowance: &settings.clockSkewAllowance,
	}).SetupWithManager(manager)
}

// newEngine returns an engine, which the caller must start. The façade validates requests with the same
// limits itself, and may only create so many locks in a namespace.
func newEngine(manager ctrl.Manager, settings options, now clock.WithTicker, name string, via audit.Via) (*engine.Engine, error) {
	isValidated, maxPerNamespace, waiters := false, 0, engine.WaiterLimits{}
	if via == audit.Facade {
		isValidated, maxPerNamespace, waiters = true, settings.maxLocks, settings.facadeServer.line
	}
	objects, err := engine.NewObjectClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	informer, err := lockInformer(manager)
	if err != nil {
		return nil, err
	}
	created, err := engine.New(engine.Options{
		Objects:            objects.Locks,
		Informer:           informer,
		Stream:             settings.lockWatch,
		Limits:             settings.limits,
		ClockSkewAllowance: settings.clockSkewAllowance,
		Clock:              now,
		Logger:             manager.GetLogger().WithName(name),
		Audit:              settings.audit,
		Via:                via,
		Tracer:             settings.tracer,
		Observer:           settings.metrics.Observer(via),
		IsValidated:        isValidated,
		MaxPerNamespace:    maxPerNamespace,
		Waiters:            waiters,
	})
	if err != nil {
		return nil, err
	}
	return created, errors.Join(
		registerWatchMetrics(created, name),
		settings.metrics.Watch(via, created.Waits),
		manager.Add(&lockevents.LongWaits{
			Waits: created, Reporter: &lockevents.Reporter{Recorder: settings.events}, Clock: servertime.Timers(now),
		}))
}

// lockInformer returns the one informer on locks that all components share.
func lockInformer(manager ctrl.Manager) (cache.Informer, error) {
	return manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
}

// cacheCheck fails until the cache has caught up with the API server once.
func cacheCheck(informers cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), cacheCheckTimeout)
		defer cancel()
		if !informers.WaitForCacheSync(ctx) {
			return errors.New("the cache has not caught up with the API server yet")
		}
		return nil
	}
}
