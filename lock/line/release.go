package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// forwardFor is how long a release or a renewal waits for the home. Then this replica does it by itself, and the
// home, if it is late, does nothing any more.
const forwardFor = 500 * time.Millisecond

// Release implements [lock.Backend]. The replica that has granted the lock hands it on. Release completes even if ctx
// ends meanwhile; if a deadline of ctx passes first, the caller gets [lock.ErrUnavailable].
func (l *Line) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	_, hasDeadline := ctx.Deadline()
	released := make(chan error, 1)
	outliving := engine.ContextWithCaller(context.WithoutCancel(ctx), ctx, l.Now())
	release := func() {
		detached, cancel := context.WithTimeout(outliving, maxRelease)
		defer cancel()
		released <- l.release(detached, namespace, key, proof)
	}
	if !hasDeadline || ctx.Err() != nil || !l.host.later(release) {
		release()
	}
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		select {
		case err := <-released:
			return err
		default:
			return fmt.Errorf("release %s in namespace %s: there was no answer in time: %w", key, namespace, lock.ErrUnavailable)
		}
	}
	return <-released
}

// maxRelease bounds a release: the question to the home, a release here, and a look at what has become of the lock.
const maxRelease = forwardFor + 2*lock.OperationTimeout

// release is [Line.Release] without regard to ctx.
func (l *Line) release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) (err error) {
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
	limited, wasShown := l.limit(name, proof)
	if !wasShown {
		// If the home did not answer, it would stay unknown whether the proof was for the grant that it has ended,
		// and a second try could end the next one under the same owner token.
		return l.Local.Release(ctx, namespace, key, proof)
	}
	defer func() {
		if !errors.Is(err, lock.ErrUnavailable) {
			l.recent.forget(name, proof)
		}
	}()
	inquiry, isAsked := l.askHome(ctx, question{Kind: release, Namespace: namespace, Key: key, Proof: &limited})
	if !isAsked {
		return l.Local.Release(ctx, namespace, key, proof)
	}
	defer inquiry.leave()
	waiting, cancel := context.WithTimeout(ctx, forwardFor)
	told, isAnswered := inquiry.await(waiting)
	cancel()
	switch told.Result {
	case done:
		return nil
	case unknown, leaving:
	default:
		return l.Local.Release(ctx, namespace, key, proof)
	}
	err = l.Local.Release(ctx, namespace, key, limited)
	// What has expired by the clock of this replica may be held still by another one.
	isOver := !errors.Is(err, lock.ErrExpired) && (errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch))
	if isOver && !isAnswered { // The home has ended the grant, or another call. A home that is slow tells which.
		told, _ = inquiry.await(ctx)
	}
	switch {
	case isOver && told.Result == done:
		return nil
	case isOver && told.Result == declined: // It has done nothing. Another call has ended the grant, or a later one is meant.
		return cmp.Or(l.afterEnd(ctx, namespace, key, proof), err)
	case errors.Is(err, lock.ErrNothingDone):
		return noAnswer("release", namespace, key) // The home may have done it.
	case isOver && proof.FencingToken != 0:
		return nil
	case isOver:
		return l.afterEnd(ctx, namespace, key, proof)
	}
	return err
}

// afterEnd is the outcome of a release whose grant is over: the home has released it, or the ttl has. It is unknown if
// the lock is held under the same owner token again, since the caller may have meant that grant.
func (l *Line) afterEnd(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	current, err := l.Get(ctx, namespace, key)
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		return nil
	case err != nil:
		return err
	case rules.Release(current, proof, l.Now()) != nil:
		return nil //nolint:nilerr // It is over, as the caller wants.
	}
	return noAnswer("release", namespace, key)
}

func noAnswer(operation, namespace string, key v1alpha1.FullKey) error {
	return fmt.Errorf("%s %s in namespace %s: the home of its line did not answer: %w", operation, key, namespace, lock.ErrUnavailable)
}

// limit limits a proof to the grant that it is for, if this replica was told or shown of that: a home grants anew what it
// finds granted by another one, so to all grants of one wait. What this replica knows may be a former one to the same
// owner.
func (l *Line) limit(name types.NamespacedName, proof lock.Proof) (limited lock.Proof, wasShown bool) {
	var latest *v1alpha1.Lock
	for _, known := range []*v1alpha1.Lock{l.recent.find(name, l.timers.Now()), l.Shown(name)} {
		if rules.Release(known, proof, l.Now()) == nil && (latest == nil || rules.IsNewer(known.ResourceVersion, latest.ResourceVersion)) {
			latest = known
		}
	}
	if latest == nil {
		return proof, false
	}
	return proof.LimitedTo(latest), true
}

// Renew implements [lock.Backend]. The replica that has granted the lock renews it, so that its next release
// hands it on without a read.
func (l *Line) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	told := l.atHome(ctx, question{Kind: renew, Namespace: namespace, Key: key, Proof: &proof, TTL: ttl})
	if told.Result == done && told.Lock != nil {
		return told.Lock, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	renewed, err := l.Local.Renew(ctx, namespace, key, proof, ttl)
	if errors.Is(err, lock.ErrStale) && (told.Result == unknown || told.Result == leaving) {
		// The renewal of the home may be the version that is newer.
		return nil, noAnswer("renew", namespace, key)
	}
	return renewed, err
}

// atHome is what the home of the line has answered within [forwardFor], see [Line.askHome]. The result is declined if
// it was not asked, and leaving if it has not answered.
func (l *Line) atHome(ctx context.Context, asked question) answer {
	inquiry, isAsked := l.askHome(ctx, asked)
	if !isAsked {
		return answer{Result: declined}
	}
	defer inquiry.leave()
	ctx, cancel := context.WithTimeout(ctx, forwardFor)
	defer cancel()
	told, _ := inquiry.await(ctx)
	return told
}

// askHome asks the home of the line about a lock that this replica has not granted, and reports whether there is one to ask.
func (l *Line) askHome(ctx context.Context, asked question) (sent inquiry, isAsked bool) {
	if l.members.isAlone() {
		return inquiry{}, false
	}
	if _, _, isKnown := l.Known(asked.Namespace, asked.Key, *asked.Proof); isKnown {
		return inquiry{}, false
	}
	name := types.NamespacedName{Namespace: asked.Namespace, Name: asked.Key.ObjectName()}
	home := l.members.view().homeOf(name)
	stream := l.members.streamTo(home)
	if home == l.self || stream == nil {
		return inquiry{}, false
	}
	asked.User, asked.Trace, asked.Came = lock.UserFrom(ctx), l.traces.Of(ctx), l.timers.Since(l.members.epoch)
	return stream.inquire(asked)
}

// tellHome tells the home of a line of the traced release that is about to delete its lock: the wait that it ends links to
// it. It is sent ahead of the delete, so the home most often hears of it before its watch shows the end.
func (l *Line) tellHome(release context.Context, of *v1alpha1.Lock) {
	if l.members.isAlone() {
		return
	}
	trace := l.traces.Of(release)
	home := l.members.view().homeOf(nameOf(of))
	if stream := l.members.streamTo(home); trace != "" && home != l.self && stream != nil {
		stream.outbox.put(question{Kind: ending, Namespace: of.Namespace, Key: of.Spec.FullKey(), UID: of.UID, Trace: trace})
	}
}

// recentFor is how long the informer may take to show a grant.
const recentFor = 2 * time.Second

// recent are the locks that callers of this replica have got from other homes a moment ago, which the informer
// may not show yet.
type recent struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*v1alpha1.Lock
	order  []recentGrant
}

type recentGrant struct {
	lock  *v1alpha1.Lock
	until time.Time
}

func (r *recent) note(granted *v1alpha1.Lock, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	if r.byName == nil {
		r.byName = map[types.NamespacedName]*v1alpha1.Lock{}
	}
	r.byName[nameOf(granted)] = granted
	r.order = append(r.order, recentGrant{granted, now.Add(recentFor)})
}

// forget forgets the lock that the proof is for: a release of it has been answered.
func (r *recent) forget(name types.NamespacedName, proof lock.Proof) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byName[name]; known != nil && known.Spec.Owner == proof.Owner {
		delete(r.byName, name)
	}
}

// find returns nil if there is none.
func (r *recent) find(name types.NamespacedName, now time.Time) *v1alpha1.Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	return r.byName[name]
}

// sweep forgets those that the informer shows by now. It needs the mutex.
func (r *recent) sweep(now time.Time) {
	for len(r.order) > 0 && !now.Before(r.order[0].until) {
		if old := r.order[0].lock; r.byName[nameOf(old)] == old {
			delete(r.byName, nameOf(old))
		}
		r.order[0] = recentGrant{}
		r.order = r.order[1:]
	}
}

func nameOf(granted *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: granted.Namespace, Name: granted.Name}
}
