package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock/engine"
)

// components are the dependencies of locks, for the health function. Without the API server
// the façade is unhealthy; with a stale cache it is only slower to see locks end.
func components(manager ctrl.Manager, locks *engine.Engine) (forrst.Components, error) {
	client, err := kubernetes.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return forrst.Components{
		{Name: "kubernetes_api", Check: apiServerCheck(client)},
		{Name: "cache", Check: cacheComponentCheck(manager.GetCache(), locks)},
	}, nil
}

// apiServerCheck sends a request that every authenticated client may send.
func apiServerCheck(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
}

func cacheComponentCheck(informers cache.Cache, locks *engine.Engine) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, cacheCheckTimeout)
		defer cancel()
		if !informers.WaitForCacheSync(ctx) {
			return fmt.Errorf("%w: the cache has not caught up with the API server yet", forrst.ErrDegraded)
		}
		if closed := locks.WatchState().ClosedFor; closed > 0 {
			return fmt.Errorf("%w: the watch of locks has been closed for %s", forrst.ErrDegraded, closed)
		}
		return nil
	}
}
