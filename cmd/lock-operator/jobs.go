package main

import (
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/controllers/jobgate"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
)

// addJobGate adds the controllers of locked Jobs. They have their own engine, since the
// façade may run elsewhere or not at all.
func addJobGate(manager ctrl.Manager, settings options, now clock.WithTicker, election *leadership.Election) (*jobgate.Reconciler, error) {
	engine, err := newEngine(manager, settings, now, "job-lock-engine", audit.Controller)
	if err != nil {
		return nil, err
	}
	if err := manager.Add(engine); err != nil {
		return nil, err
	}
	if err := addHeartbeat(manager, settings, now, engine); err != nil {
		return nil, err
	}
	reconciler := &jobgate.Reconciler{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Engine:     engine,
		Holder:     settings.operatorUser,
		Limits:     settings.limits,
		Clock:      now,
		Leadership: election,
		Recorder:   manager.GetEventRecorder("lock-operator"),
		Audit:      settings.audit,
		Count:      settings.metrics.CountDoor("job"),
		Tracer:     settings.tracer,
	}
	if err := reconciler.SetupWithManager(manager); err != nil {
		return nil, err
	}
	if err := metrics.Registry.Register(reconciler); err != nil {
		return nil, fmt.Errorf("register the metrics of Jobs: %w", err)
	}
	return reconciler, nil
}
