package main

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// newRouting returns the routes of the file, which the manager follows, or nil if there is no
// file.
func newRouting(manager ctrl.Manager, settings options) (*forrst.Routing, error) {
	if settings.facadeRoutes == "" {
		return nil, nil // That is what no routing is.
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
