package main

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// newRouting makes the manager watch the file of routes. It returns nil without such a file.
func newRouting(manager ctrl.Manager, settings options) (*forrst.Routing, error) {
	if settings.facadeRoutes == "" {
		return nil, nil // Nil means no routing.
	}
	file, err := routes.Open(settings.facadeRoutes, nil, manager.GetLogger().WithName("facade-routes"))
	if err != nil {
		return nil, err
	}
	if err := manager.Add(file); err != nil {
		return nil, err
	}
	return &forrst.Routing{Routes: file, Client: forward.NewClient(nil)}, nil
}
