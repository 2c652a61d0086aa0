package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"forrst.dev/lock-operator/facade/forrst"
)

// components are what locks depend on, for health. An API server that is away makes the
// façade unhealthy; a cache that is behind only makes it slower to see locks end.
func components(manager ctrl.Manager) (forrst.Components, error) {
	client, err := kubernetes.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return forrst.Components{
		{Name: "kubernetes_api", Check: apiServerCheck(client)},
		{Name: "cache", Check: cacheComponentCheck(manager.GetCache())},
	}, nil
}

// apiServerCheck asks what every authenticated client may ask.
func apiServerCheck(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
}

func cacheComponentCheck(informers cache.Cache) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, cacheCheckTimeout)
		defer cancel()
		if !informers.WaitForCacheSync(ctx) {
			return fmt.Errorf("%w: the cache has not caught up with the API server yet", forrst.ErrDegraded)
		}
		return nil
	}
}
