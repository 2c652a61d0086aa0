package testenv

import (
	"context"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// StartFacade serves a façade on an engine of its own that has the identity of config, with
// the default limits and the settings. It runs until stop is called, even if ctx ends
// before; stop returns the error that the engine has ended with.
func StartFacade(ctx context.Context, config *rest.Config, settings testfacade.Settings) (url string, stop func() error, err error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", nil, err
	}
	objects, err := engine.NewObjectClient(config, httpClient)
	if err != nil {
		return "", nil, err
	}
	engine, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits(), IsValidated: true, Logger: settings.Logger, Tracer: settings.Server.Tracer})
	if err != nil {
		return "", nil, err
	}
	settings.Locks = engine
	handler, err := testfacade.New(settings)
	if err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- engine.Start(running) }()
	server := httptest.NewServer(handler)
	return server.URL, func() error {
		server.Close()
		cancel()
		return <-ended
	}, nil
}
