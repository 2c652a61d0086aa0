// Package heartbeat makes every watch of locks show something several times in two seconds, so that one that shows
// nothing is known to be stuck, and one that has lost a change differs from what another one has
// shown.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/digest"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// period is how long after the last renewal the replica that made it makes the next.
	period = engine.HeartbeatPeriod
	// succession is how much longer the other replicas wait, and spread by how much each differs.
	// [engine.DefaultMaxWatchSilence] leaves them time to write.
	succession = 150 * time.Millisecond
	spread     = 50 * time.Millisecond
	// maxTTL is much longer than a replica needs to restart, so that the lock is not reaped
	// meanwhile.
	maxTTL = time.Minute
	// timeout bounds one renewal: after it, another replica is faster.
	timeout = 2 * time.Second
)

// Digests is what the informer has shown; an [engine.WatchStream] implements it.
type Digests interface {
	// Digest returns the digest to publish; empty if it is not known.
	Digest() string
	// Compare judges the digest of another replica.
	Compare(heartbeat *v1alpha1.Lock) digest.Verdict
}

// Options configures a [Heartbeat]. All fields are required except Digests and Logger.
type Options struct {
	// Namespace of the lock.
	Namespace string
	// Holder is the identity of this process, which the lock names.
	Holder string
	// Objects are the requests in the namespace.
	Objects engine.Objects
	// Locks acquires the lock when there is none.
	Locks lock.Backend
	// Informer shows the renewals of all replicas.
	Informer engine.Informer
	// Digests is the stream of the informer. Nil means that each renewal only shows that the
	// watches are alive.
	Digests Digests
	Limits  rules.Limits
	// Clock stamps the renewals.
	Clock  clock.WithTicker
	Logger logr.Logger
}

// Heartbeat renews the lock of [engine.HeartbeatKey] each period, together with those of the other
// replicas: the one that has renewed it last goes on, and if it does not, another one does. Each
// renewal is one conditional write, so the cluster has about four in three seconds however many
// replicas there are. The lock excludes nothing; its owner token serves all replicas.
//
// A renewal says what the replica was shown. One that was shown something else answers with a
// renewal of its own, once a period at most, since it cannot know which of the two has lost a change.
type Heartbeat struct {
	options Options
	// timers is the uncorrected clock.
	timers clock.WithTicker
	random func() float64
	// wake makes Start look again.
	wake chan struct{}

	mu sync.Mutex
	// current is the lock as last seen, or nil; at is when, or when this replica began to write it,
	// which isOwn says.
	current *v1alpha1.Lock
	at      time.Time
	isOwn   bool
	// answerAt is when this replica renews the lock to answer the renewal of another one; zero
	// unless it is to.
	answerAt time.Time
	// said is when this replica last renewed the lock.
	said time.Time
	// isFailing says that the log tells of a failure.
	isFailing bool
}

// New returns a heartbeat that is not yet started.
func New(options Options) (*Heartbeat, error) {
	timers := servertime.Timers(options.Clock)
	h := &Heartbeat{options: options, timers: timers, random: rand.Float64, wake: make(chan struct{}, 1), at: timers.Now()}
	_, err := options.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    h.see,
		UpdateFunc: func(_, object any) { h.see(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("heartbeat: watch locks: %w", err)
	}
	return h, nil
}

// NeedLeaderElection is false: the replicas take turns by themselves, and a change of leader is no
// pause.
func (h *Heartbeat) NeedLeaderElection() bool { return false }

// Start renews the lock until ctx ends. It implements controller-runtime's manager.Runnable.
func (h *Heartbeat) Start(ctx context.Context) error {
	for {
		timer := h.timers.NewTimer(h.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.wake:
			timer.Stop()
		case <-timer.C():
		}
		if h.untilDue() > 0 {
			continue // Another replica was faster.
		}
		err := h.beat(ctx)
		if ctx.Err() == nil {
			h.report(err)
		}
	}
}

// pause returns how long to sleep before this replica looks again.
func (h *Heartbeat) pause() time.Duration { return max(h.untilDue(), time.Millisecond) }

// untilDue returns how long until this replica renews the lock unless another does before.
func (h *Heartbeat) untilDue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := h.at.Add(period)
	switch {
	case !h.answerAt.IsZero():
		due = h.answerAt
	case !h.isOwn:
		due = due.Add(succession + time.Duration(h.random()*float64(spread)))
	}
	return due.Sub(h.timers.Now())
}

// see takes in what the informer shows.
func (h *Heartbeat) see(object any) {
	shown, ok := object.(*v1alpha1.Lock)
	if !ok || shown.Namespace != h.options.Namespace || shown.Spec.FullKey() != fullKey {
		return
	}
	h.record(shown, false, h.timers.Now())
	if h.options.Digests == nil {
		return
	}
	switch h.options.Digests.Compare(shown) {
	case digest.Lags, digest.Differs:
		h.answer(shown)
	case digest.Unknown, digest.Agrees:
	}
}

// answer makes this replica say what it was shown, unless the lock has been renewed since, or this
// replica has said so within the last period: all replicas have compared that already.
func (h *Heartbeat) answer(renewed *v1alpha1.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.timers.Now()
	if !isSame(h.current, renewed) || now.Sub(h.said) < period {
		return
	}
	h.answerAt = now.Add(time.Duration(h.random() * float64(spread)))
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// isSame reports whether two states, which may be nil, are of one version.
func isSame(known, other *v1alpha1.Lock) bool {
	return known != nil && other != nil && known.ResourceVersion == other.ResourceVersion
}

var fullKey = v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", engine.HeartbeatKey)

// record stores a state unless a newer one is known. The informer may show an own write before its
// answer arrives.
func (h *Heartbeat) record(seen *v1alpha1.Lock, isOwn bool, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isOwn {
		h.said = at
	}
	if h.current == nil || rules.IsNewer(seen.ResourceVersion, h.current.ResourceVersion) || isOwn && isSame(h.current, seen) {
		h.set(seen, isOwn, at)
	}
}

// set is called under the mutex.
func (h *Heartbeat) set(current *v1alpha1.Lock, isOwn bool, at time.Time) {
	h.current, h.at, h.isOwn, h.answerAt = current, at, isOwn, time.Time{}
}

// giveWay stores what was read, and makes the replica wait for its next turn, or for its answer to
// what was read.
func (h *Heartbeat) giveWay(current *v1alpha1.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answerAt := h.answerAt
	isShown := isSame(h.current, current)
	h.set(current, false, h.timers.Now())
	if isShown {
		h.answerAt = answerAt
	}
}

// begin returns the lock as last seen, for a renewal that begins, which is the answer if there is to
// be one.
func (h *Heartbeat) begin() *v1alpha1.Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answerAt = time.Time{}
	return h.current
}

// beat renews the lock, or acquires it if there is none.
func (h *Heartbeat) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	current, began := h.begin(), h.timers.Now()
	if current != nil && rules.IsStripped(current) {
		if err := h.read(ctx); err != nil {
			return err
		}
		current = h.begin()
	}
	if current == nil || rules.Expired(current, h.options.Clock.Now()) {
		return h.acquire(ctx, began)
	}
	next, err := rules.Renew(current, rules.Proof{Owner: current.Spec.Owner}, 0, h.options.Clock.Now())
	if err != nil {
		return fmt.Errorf("renew the heartbeat: %w", err)
	}
	h.setDigest(next)
	stored, err := h.options.Objects.Update(ctx, next, metav1.UpdateOptions{})
	switch {
	case err == nil:
		h.record(stored, true, began)
		return nil
	case refusal.IsConflict(err), refusal.IsNotFound(err):
		return h.read(ctx) // Another replica was faster, or the lock was released.
	}
	return fmt.Errorf("renew the heartbeat: %w", err)
}

// setDigest replaces the digest of the replica that has renewed the lock before.
func (h *Heartbeat) setDigest(renewed *v1alpha1.Lock) {
	delete(renewed.Annotations, v1alpha1.DigestAnnotation)
	if h.options.Digests == nil {
		return
	}
	if known := h.options.Digests.Digest(); known != "" {
		metav1.SetMetaDataAnnotation(&renewed.ObjectMeta, v1alpha1.DigestAnnotation, known)
	}
}

func (h *Heartbeat) acquire(ctx context.Context, began time.Time) error {
	granted, err := h.options.Locks.Acquire(ctx, h.options.Namespace, lock.Request{Acquisition: rules.Acquisition{
		Key: engine.HeartbeatKey, TTL: min(maxTTL, h.options.Limits.MaxTTL), Holder: h.options.Holder,
		Reason: "renewed all the time, so that watches of locks are known to be alive",
	}})
	switch {
	case err == nil:
		h.record(granted, true, began)
		return nil
	case errors.Is(err, lock.ErrHeld):
		return h.read(ctx)
	}
	return err
}

// read finds out what the informer has not shown.
func (h *Heartbeat) read(ctx context.Context) error {
	current, err := h.options.Objects.Get(ctx, fullKey.ObjectName(), metav1.GetOptions{})
	switch {
	case err == nil:
		h.giveWay(current)
		return nil
	case refusal.IsNotFound(err):
		h.giveWay(nil)
		return nil
	}
	return fmt.Errorf("read the heartbeat: %w", err)
}

// report makes the replica wait for its next turn after a failure. It logs the first one, and that
// it is over.
func (h *Heartbeat) report(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.set(h.current, false, h.timers.Now())
	}
	switch {
	case err != nil && !h.isFailing:
		h.options.Logger.Error(err, "Cannot renew the heartbeat lock, trying again; without it waiting callers cost reads",
			"namespace", h.options.Namespace)
	case err == nil && h.isFailing:
		h.options.Logger.Info("Renewed the heartbeat lock again")
	}
	h.isFailing = err != nil
}
