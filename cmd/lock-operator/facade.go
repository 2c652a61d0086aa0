package main

import (
	"context"
	"errors"
	"net"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/certificates/certfile"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/facade/ui"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/servertime"
)

// addFacade adds the façade with its doors, Forrst and REST, and the page on one listener.
func addFacade(manager ctrl.Manager, settings options, now *servertime.Clock) error {
	engine, err := newEngine(manager, settings, now, "lock-engine", audit.Facade)
	if err != nil {
		return err
	}
	dependencies, err := components(manager, engine)
	if err != nil {
		return err
	}
	routing, err := newRouting(manager, settings)
	if err != nil {
		return err
	}
	sources := []forrst.ComponentSource{dependencies}
	if routing != nil {
		sources = append(sources, routing)
	}
	access, err := newAccess(manager, settings, now)
	if err != nil {
		return err
	}
	logger := manager.GetLogger().WithName("facade")
	backend, shared, err := newBackend(manager, settings, engine, now)
	if err != nil {
		return err
	}
	locks, err := locks.New(locks.Options{
		Backend: backend,
		Limits:  settings.limits,
		Holders: &holderref.Checker{
			Reader: manager.GetAPIReader(), Mapper: manager.GetRESTMapper(), Kinds: settings.holderKinds,
			// The role of the façade alone has no right to Pods and Jobs.
			NeedsGrant: !settings.runs(controllerComponent) && !settings.runs(webhookComponent),
		},
		Logger: logger,
	})
	if err != nil {
		return err
	}
	server, err := newFacadeServer(settings, access, logger)
	if err != nil {
		return err
	}
	door, err := forrst.New(forrst.Config{
		Server:     server,
		Access:     access,
		Locks:      locks.Through("forrst", settings.metrics.CountDoor("forrst")),
		MaxBlock:   settings.facadeMaxBlock,
		Components: sources,
		Routing:    routing,
		Version:    version(),
		Clock:      now,
		Logger:     logger,
	})
	if err != nil {
		return err
	}
	server.Mount(door)
	plain, err := rest.New(rest.Config{
		Server:             server,
		Access:             access,
		Locks:              locks.Through("rest", settings.metrics.CountDoor("rest")),
		MaxWait:            settings.facadeMaxBlock,
		ClockSkewAllowance: &settings.clockSkewAllowance,
		Clock:              now,
		Logger:             logger,
	})
	if err != nil {
		return err
	}
	server.Mount(plain)
	page, err := ui.New()
	if err != nil {
		return err
	}
	server.Mount(page)
	return errors.Join(
		manager.AddReadyzCheck("facade", server.Ready),
		manager.AddReadyzCheck("lock-watch", watchCheck(engine, now)),
		(&facadeWithEngine{server: server, engine: engine, shared: shared}).addTo(manager),
	)
}

// newAccess returns what decides about the façade's callers.
func newAccess(manager ctrl.Manager, settings options, now clock.PassiveClock) (*access.Control, error) {
	log := manager.GetLogger().WithName("facade")
	if settings.facadeAuth.mode == authNone {
		log.Info("Façade does not authenticate its callers: every program on this machine can take and release its locks",
			"address", settings.facadeAddr, "namespace", settings.facadeNamespace)
		return access.New(access.Options{Namespace: settings.facadeNamespace, Clock: now})
	}
	if settings.facadeServer.tlsCertFile == "" {
		log.Info("Façade serves without TLS: bearer tokens can be read in transit", "address", settings.facadeAddr)
	}
	reviews, err := auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{Audiences: settings.facadeAuth.audienceList()})
	if err != nil {
		return nil, err
	}
	return access.New(access.Options{Access: reviews, Clock: now})
}

// newFacadeServer returns a server that already listens.
func newFacadeServer(settings options, callers *access.Control, logger logr.Logger) (*server.Server, error) {
	options := server.Options{
		LoopbackHostsOnly:        settings.facadeAuth.mode == authNone,
		MaxConnections:           settings.facadeServer.maxConnections,
		MaxConnectionsPerAddress: settings.facadeServer.maxConnectionsPerAddress,
		Access:                   callers,
		ShutdownDelay:            settings.facadeServer.shutdownDelay,
		DrainTimeout:             settings.facadeServer.drainTimeout,
		Limits:                   settings.facadeServer.calls,
		Metrics:                  metrics.Registry,
		Audit:                    settings.audit,
		Tracer:                   settings.tracer,
		Logger:                   logger,
	}
	if settings.facadeServer.tlsCertFile != "" {
		options.Certificates = certfile.New(certfile.Options{
			Certificate: settings.facadeServer.tlsCertFile, Key: settings.facadeServer.tlsKeyFile, Logger: logger,
		})
	}
	var err error
	options.Listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", settings.facadeAddr)
	if err != nil {
		return nil, err
	}
	return server.New(options)
}
