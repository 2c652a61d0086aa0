package leadership

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Election elects the replica that runs the controllers. Unlike the election of
// controller-runtime's manager, losing it does not end the process: the façade of the same
// process must survive an outage of the API server that is longer than a Lease. Controllers
// may notice a loss late; what they write must be safe with two leaders.
type Election struct {
	elector *leaderelection.LeaderElector

	mu          sync.Mutex
	leading     bool
	subscribers []chan struct{}
}

// Options configures an election.
type Options struct {
	// Namespace and Name of the Lease. Required.
	Namespace, Name string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of
	// [leaderelection.LeaderElectionConfig]. Zero means 15, 10 and 2 seconds.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=forrst-system,resources=leases,verbs=get;create;update

// NewElection returns an election that has yet to be started.
func NewElection(config *rest.Config, options Options) (*Election, error) {
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
	leadership := &Election{}
	leadership.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lease,
		Name:            options.Name,
		LeaseDuration:   options.LeaseDuration,
		RenewDeadline:   options.RenewDeadline,
		RetryPeriod:     options.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: leadership.gain,
			OnStoppedLeading: leadership.lose,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the election %s/%s: %w", options.Namespace, options.Name, err)
	}
	return leadership, nil
}

// Always returns an election that this replica has won, for a replica without others.
func Always() *Election { return &Election{leading: true} }

// IsLeader reports whether this replica leads, as far as it knows.
func (l *Election) IsLeader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// Gained returns a channel that has a value after each time that leadership was
// gained, and now if this replica leads already.
func (l *Election) Gained() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	gained := make(chan struct{}, 1)
	if l.leading {
		gained <- struct{}{}
	}
	l.subscribers = append(l.subscribers, gained)
	return gained
}

// Start takes part in the election until ctx ends, again after each loss. It
// implements controller-runtime's manager.Runnable.
func (l *Election) Start(ctx context.Context) error {
	for l.elector != nil && ctx.Err() == nil {
		l.elector.Run(ctx)
		if ctx.Err() == nil {
			log.FromContext(ctx).Info("Lost the leadership of the controllers, taking part in the election again")
		}
	}
	return nil
}

// NeedLeaderElection is false: every replica takes part.
func (l *Election) NeedLeaderElection() bool { return false }

// gain is called on a goroutine of its own and may come after the loss that ends ctx.
func (l *Election) gain(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.leading = true
	for _, gained := range l.subscribers {
		select {
		case gained <- struct{}{}:
		default: // It has not looked since the last time.
		}
	}
}

func (l *Election) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading = false
}
