package controllers

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Leadership tells whether this replica runs the controllers. Unlike the election
// of controller-runtime's manager, it does not end the process when it is lost: the
// façade of the same process must live through an outage of the API server that is
// longer than a Lease. Controllers may be late in noticing a loss, so what they
// write must be safe with two leaders, as everything here is.
type Leadership struct {
	elector *leaderelection.LeaderElector
	leading atomic.Bool
	// gained has a value whenever leadership was gained and nobody has looked yet.
	gained chan struct{}
}

// LeadershipOptions configures an election.
type LeadershipOptions struct {
	// Namespace and Name of the Lease. Required.
	Namespace, Name string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of
	// [leaderelection.LeaderElectionConfig]. Zero means 15, 10 and 2 seconds.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// NewLeadership returns an election that is not yet started.
func NewLeadership(config *rest.Config, options LeadershipOptions) (*Leadership, error) {
	if options.LeaseDuration == 0 {
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = 15*time.Second, 10*time.Second, 2*time.Second
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this candidate: %w", err)
	}
	identity := hostname + "_" + string(uuid.NewUUID())
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, options.Name,
		resourcelock.ResourceLockConfig{Identity: identity}, config, options.RenewDeadline)
	if err != nil {
		return nil, fmt.Errorf("prepare the Lease %s/%s: %w", options.Namespace, options.Name, err)
	}
	leadership := &Leadership{gained: make(chan struct{}, 1)}
	leadership.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lease,
		Name:            options.Name,
		LeaseDuration:   options.LeaseDuration,
		RenewDeadline:   options.RenewDeadline,
		RetryPeriod:     options.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leadership.gain() },
			OnStoppedLeading: func() { leadership.leading.Store(false) },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the election %s/%s: %w", options.Namespace, options.Name, err)
	}
	return leadership, nil
}

// AlwaysLeading is the leadership of a replica that needs no election.
func AlwaysLeading() *Leadership {
	leadership := &Leadership{gained: make(chan struct{}, 1)}
	leadership.gain()
	return leadership
}

// IsLeader reports whether this replica leads, as far as it knows.
func (l *Leadership) IsLeader() bool { return l.leading.Load() }

// Gained has a value after leadership was gained.
func (l *Leadership) Gained() <-chan struct{} { return l.gained }

// Start takes part in the election until ctx ends, again after each loss. It
// implements controller-runtime's manager.Runnable.
func (l *Leadership) Start(ctx context.Context) error {
	for l.elector != nil && ctx.Err() == nil {
		l.elector.Run(ctx)
		if ctx.Err() == nil {
			log.FromContext(ctx).Info("Lost the leadership of the controllers, taking part in the election again")
		}
	}
	return nil
}

// NeedLeaderElection is false: every replica takes part.
func (l *Leadership) NeedLeaderElection() bool { return false }

func (l *Leadership) gain() {
	l.leading.Store(true)
	select {
	case l.gained <- struct{}{}:
	default:
	}
}
