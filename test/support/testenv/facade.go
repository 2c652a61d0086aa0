package testenv

import (
	"context"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// StartFacade serves a façade on an engine of its own that has the identity of config, with
// the default limits. What else it is to be is in settings. It runs until stop is called,
// whatever becomes of ctx; stop returns the error that the engine has ended with.
func StartFacade(ctx context.Context, config *rest.Config, settings forrst.Config) (url string, stop func() error, err error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", nil, err
	}
	objects, err := engine.NewObjectClient(config, httpClient)
	if err != nil {
		return "", nil, err
	}
	engine, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits()})
	if err != nil {
		return "", nil, err
	}
	settings.Locks, settings.Limits = engine, rules.DefaultLimits()
	handler, err := forrst.New(settings)
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
