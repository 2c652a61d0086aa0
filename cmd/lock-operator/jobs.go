package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/controllers/jobgate"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
)

// guestName is the name of the Jobs' engine as a guest of the façade's lines. No Pod can have it.
const guestName = "guest:jobs"

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
	locks, err := joinLines(manager, settings, engine, now)
	if err != nil {
		return nil, err
	}
	reconciler := &jobgate.Reconciler{
		Client:     manager.GetClient(),
		LiveReader: manager.GetAPIReader(),
		Engine:     locks,
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

// joinLines returns where Jobs take their locks: the engine, or its line as a guest of the façade.
func joinLines(manager ctrl.Manager, settings options, own *engine.Engine, now clock.WithTicker) (lock.Backend, error) {
	if !settings.peers.isGuest() {
		return own, nil
	}
	joined, watch, err := settings.peers.join(manager, own, guestName, settings.leaderElectionNamespace, now)
	if err != nil {
		return nil, err
	}
	return joined, errors.Join(manager.Add(everywhere(joined.Start)), manager.Add(watch))
}

// everywhere runs on every replica.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
