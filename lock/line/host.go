package line

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/rules"
)

// host serves the lines that this replica is home to.
type host struct {
	local  Local
	timers clock.WithTicker
	traces Traces
	// epoch is that of the members.
	epoch time.Time
	// hasLostTouch reports whether this replica has lost touch with the API server.
	hasLostTouch func() bool

	mu sync.Mutex
	// visits are the streams of other replicas.
	visits map[*visit]struct{}
	// isDraining says that the lines move to other replicas.
	isDraining bool
	// endings are the locks being taken back from replicas whose streams have ended.
	endings sync.WaitGroup
	// isFinishing says that the line ends when the streams of other replicas have, which gone tells.
	isFinishing bool
	gone        chan struct{}
	// isOver says that the line has ended, and takes back nothing any more.
	isOver bool
}

// takeBackAfter is how long after the end of its stream a replica may claim at another home what it was offered.
const takeBackAfter = pingPeriod

func (h *host) serves() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.isDraining && h.local.IsRunning()
}

// drain asks the other replicas to take their callers elsewhere.
func (h *host) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isDraining = true
	for visit := range h.visits {
		visit.outbox.put(answer{Result: leaving})
	}
}

// tell tells the other replicas at once whether this one has lost touch, which its answers to pings do, too.
func (h *host) tell(isLost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDraining || !h.local.IsRunning() {
		return
	}
	for visit := range h.visits {
		visit.outbox.put(answer{Result: pong, IsLost: isLost})
	}
}

func (h *host) add(visit *visit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.visits[visit] = struct{}{}
}

func (h *host) remove(visit *visit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.visits, visit)
	if h.isFinishing && len(h.visits) == 0 {
		h.signalGone()
	}
}

// visit is one stream of another replica.
type visit struct {
	host *host
	// guest is the user for whom a guest asks; empty for a member.
	guest  string
	outbox *outbox[answer]
	// behind relates the clock of the other replica to this one's. Only the listener uses it.
	behind offset
	// calls are the releases, hand-offs and renewals under way.
	calls sync.WaitGroup

	mu sync.Mutex
	// places are those of the callers that wait, by the ID of their question. Nil when the stream has ended.
	places map[uint64]engine.Place
	// offers are the locks that were granted to them, and are not taken yet.
	offers map[uint64]offer
}

// offer is a lock that was granted to a caller, and the place that it had.
type offer struct {
	lock  *v1alpha1.Lock
	place places.Place
}

// serve answers the questions of one replica until its stream ends. Its callers then leave the line, and keep
// their places for a while.
func (h *host) serve(stream grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	visit := &visit{host: h, guest: guestOf(ctx), outbox: newOutbox[answer](), places: map[uint64]engine.Place{}, offers: map[uint64]offer{}}
	h.add(visit)
	defer visit.calls.Wait()
	defer h.remove(visit)
	defer visit.end(ctx)
	pulse := newPulse(h.timers)
	ended := make(chan error, 2)
	go func() { ended <- visit.listen(ctx, stream, pulse) }() // It ends with the stream.
	go func() {
		ended <- visit.outbox.drain(ctx.Done(), func(message answer) error {
			message.Sent = h.timers.Since(h.epoch)
			return stream.SendMsg(&message)
		})
	}()
	return pulse.watch(ctx, ended)
}

func (v *visit) listen(ctx context.Context, stream grpc.ServerStream, pulse *pulse) error {
	for {
		var asked question
		if err := stream.RecvMsg(&asked); err != nil {
			return err
		}
		pulse.beat()
		v.behind.note(v.host.timers.Now(), asked.Sent)
		v.answer(ctx, asked)
	}
}

func (v *visit) answer(ctx context.Context, asked question) {
	if v.guest != "" {
		if !asked.isFor(v.guest) {
			v.outbox.put(answer{ID: asked.ID, Result: declined})
			return
		}
		asked.User = v.guest
	}
	switch asked.Kind {
	case ping:
		if !v.host.serves() {
			v.outbox.put(answer{Result: leaving})
			return
		}
		v.outbox.put(answer{ID: asked.ID, Result: pong, IsLost: v.host.hasLostTouch()})
	case enlist:
		v.enlist(ctx, asked)
	case take:
		v.take(asked.ID)
	case leave:
		v.leave(ctx, asked)
	case giveUp:
		v.giveUp(asked.ID)
	case ending:
		name := types.NamespacedName{Namespace: asked.Namespace, Name: asked.Key.ObjectName()}
		v.host.local.ReleasedElsewhere(v.host.traces.With(context.WithoutCancel(ctx), asked.Trace), name, asked.UID)
	case list, count:
		// Not here: callers that take their locks come first.
		v.begin(func() { v.outbox.put(v.list(ctx, asked)) })
	case release, renew:
		if v.host.timers.Since(v.behind.at(asked.Came)) > forwardFor {
			v.outbox.put(answer{ID: asked.ID, Result: declined}) // Its replica has done it by itself.
			return
		}
		came := v.since(asked.Came)
		v.begin(func() { v.outbox.put(v.call(ctx, asked, came)) })
	default:
		v.outbox.put(answer{ID: asked.ID, Result: declined})
	}
}

// since returns a time of the other replica by the clock that grants. Only what listens may call it.
func (v *visit) since(shown time.Duration) time.Time {
	return v.host.local.Now().Add(-v.host.timers.Since(v.behind.at(shown)))
}

// enlist lets the caller wait in the line of the lock.
func (v *visit) enlist(ctx context.Context, asked question) {
	if asked.Acquisition == nil {
		v.outbox.put(answer{ID: asked.ID, Result: declined})
		return
	}
	request := lock.Request{Acquisition: *asked.Acquisition, Wait: asked.Wait, Door: asked.Door, IsUnbounded: v.guest != ""}
	if v.guest == "" { // A guest has authorized nothing.
		request.Priority = asked.Priority
	}
	request.Since = v.since(asked.Came)
	if asked.IsAccepted {
		request.PlaceSince = v.since(asked.Stood)
	}
	id := asked.ID // The function below must not keep all of the question.
	// The mutex keeps an outcome from being passed on before the place is known.
	v.mu.Lock()
	defer v.mu.Unlock()
	_, waits := v.places[id]
	_, isOffered := v.offers[id]
	if v.places == nil || waits || isOffered {
		return // An ID is of one caller.
	}
	place, err := v.host.local.Enlist(v.host.traces.With(ctx, asked.Trace), asked.Namespace, request, func(granted *v1alpha1.Lock, err error) bool {
		return v.pass(id, granted, err)
	})
	if err != nil {
		told := answer{ID: asked.ID, Result: leaving}
		if tooMany, ok := errors.AsType[*lock.LineFullError](err); ok {
			told.Result, told.Full = full, tooMany
		}
		v.outbox.put(told)
		return
	}
	v.places[asked.ID] = place
	if age, known := v.host.local.Now().Sub(place.Since()), v.host.timers.Since(v.behind.at(asked.Stood)); age > known+placedAfter {
		v.outbox.put(answer{ID: asked.ID, Result: placed, Stood: v.host.timers.Since(v.host.epoch) - age})
	}
}

// placedAfter is by how much a place is older than its replica knows, for that to be told.
const placedAfter = time.Millisecond

// begin runs a call, unless the stream has ended.
func (v *visit) begin(call func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.places != nil {
		v.calls.Go(call)
	}
}

// pass passes an outcome on. It reports false if the caller has left.
func (v *visit) pass(id uint64, granted *v1alpha1.Lock, err error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	place, waits := v.places[id]
	if !waits {
		return false
	}
	if err != nil {
		delete(v.places, id)
		return v.outbox.put(v.answerOf(id, place, err))
	}
	if !v.outbox.put(answer{ID: id, Result: offered, Lock: granted}) {
		return false // The stream has ended, and so the place is lost.
	}
	delete(v.places, id)
	v.offers[id] = offer{lock: granted, place: place.Kept()}
	return true
}

// answerOf tells how a wait has ended without the lock.
func (v *visit) answerOf(id uint64, at engine.Place, err error) answer {
	told := answer{ID: id, IsUnsure: at.IsUnsure()}
	switch {
	case errors.Is(err, lock.ErrFoundElsewhere):
		told.Result = renewed
	case errors.Is(err, lock.ErrTimeout):
		told.Result = timedOut
		told.Held, _ = errors.AsType[*lock.HeldError](err)
	case !errors.Is(err, lock.ErrUnavailable):
		told.Result = declined
	case v.host.local.IsRunning():
		told.Result = unavailable
	default:
		told.Result = leaving
	}
	return told
}

// take makes the lock that was offered the caller's.
func (v *visit) take(id uint64) {
	v.mu.Lock()
	taken, isOffered := v.offers[id]
	delete(v.offers, id)
	v.mu.Unlock()
	if isOffered {
		v.outbox.put(answer{ID: id, Result: done, HeldFor: rules.UntilReclaimable(taken.lock, v.host.local.Now(), 0)})
	}
}

// leave takes a caller out of the line, or its lock back.
func (v *visit) leave(ctx context.Context, asked question) {
	id := asked.ID
	told := answer{ID: id, Result: left}
	if place, waits := v.takeOut(id); waits {
		if asked.IsMoving {
			place.Move()
		} else {
			_ = place.Leave()
		}
		told.IsUnsure = place.IsUnsure()
		v.outbox.put(told)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	refused, isOffered := v.offers[id]
	if !isOffered {
		v.outbox.put(told)
		return
	}
	delete(v.offers, id)
	if !asked.IsMoving {
		v.host.local.Keep(refused.place)
	}
	v.calls.Go(func() {
		told.IsUnsure = errors.Is(v.host.takeBack(ctx, refused.lock), lock.ErrUnavailable)
		v.outbox.put(told)
	})
}

// takeBack ends a grant that no replica has taken. The next caller in line gets the lock. After an error that matches
// [lock.ErrUnavailable] the engine goes on.
func (h *host) takeBack(ctx context.Context, granted *v1alpha1.Lock) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.OperationTimeout)
	defer cancel()
	return h.local.Release(ctx, granted.Namespace, granted.Spec.FullKey(), proofOf(granted))
}

// proofOf proves a grant of which no caller has learnt: it does not end one that was renewed since, nor the
// next one under the same owner token.
func proofOf(granted *v1alpha1.Lock) lock.Proof {
	proof := lock.Proof{Owner: granted.Spec.Owner, IsUnrenewed: true}
	proof.FencingToken, _ = granted.FencingToken()
	return proof
}

// giveUp ends the wait of a caller at its bound.
func (v *visit) giveUp(id uint64) {
	v.mu.Lock()
	place, waits := v.places[id]
	v.mu.Unlock()
	if !waits {
		return // Its outcome is under way.
	}
	err := place.GiveUp()
	if err == nil {
		return
	}
	if place, waits := v.takeOut(id); waits {
		told := v.answerOf(id, place, err)
		if told.Held != nil && v.guest == "" { // A guest is told nothing of other callers.
			held := *told.Held // The engine may have given it to others, too.
			held.Waiting = new(place.Waiting())
			told.Held = &held
		}
		v.outbox.put(told)
	}
}

// takeOut removes the place of a caller, and reports whether it had one.
func (v *visit) takeOut(id uint64) (place engine.Place, waits bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	place, waits = v.places[id]
	delete(v.places, id)
	return place, waits
}

// call releases or renews a lock that this replica has granted. It declines any other: the replica that asks
// then finds out by itself.
func (v *visit) call(ctx context.Context, asked question, came time.Time) answer {
	if asked.Proof == nil {
		return answer{ID: asked.ID, Result: declined}
	}
	// The proof is for that grant alone: if the stream breaks, its replica releases it by itself, and the next grant may
	// be to the same owner.
	proof, version, isKnown := v.host.local.Known(asked.Namespace, asked.Key, *asked.Proof)
	if !isKnown {
		return answer{ID: asked.ID, Result: declined}
	}
	// What has begun is completed, also if the stream breaks.
	ctx, cancel := context.WithTimeout(lock.ContextWithUser(context.WithoutCancel(v.host.traces.With(ctx, asked.Trace)), asked.User), lock.OperationTimeout)
	defer cancel()
	switch asked.Kind {
	case release:
		err := v.host.local.ReleaseGrant(engine.ContextWithoutCaller(ctx, came), asked.Namespace, asked.Key, proof)
		switch {
		case err == nil:
			return answer{ID: asked.ID, Result: done}
		case errors.Is(err, lock.ErrNothingDone),
			!errors.Is(err, engine.ErrOver) && (errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)): // Another call has ended it.
			return answer{ID: asked.ID, Result: declined}
		}
		// That the grant is over may be what its own first try has done, and its caller may mean a later one. Whether
		// it is to end after a renewal, only the replica of the caller knows.
		return answer{ID: asked.ID, Result: unknown}
	default:
	}
	// Of this version alone: if this takes too long, its replica renews the lock by itself, maybe for longer, and more
	// than once. None of these may be undone by a write that comes late.
	proof.ResourceVersion = cmp.Or(proof.ResourceVersion, version)
	renewed, err := v.host.local.Renew(ctx, asked.Namespace, asked.Key, proof, asked.TTL)
	switch {
	case errors.Is(err, lock.ErrUnavailable):
		return answer{ID: asked.ID, Result: unknown}
	case err != nil:
		return answer{ID: asked.ID, Result: declined}
	}
	return answer{ID: asked.ID, Result: done, Lock: renewed}
}

// end takes the callers out of the lines, and the locks back that they have not learnt of. They keep their places here.
func (v *visit) end(ctx context.Context) {
	v.outbox.close()
	v.mu.Lock()
	standing, offers := v.places, v.offers
	v.places, v.offers = nil, nil
	v.mu.Unlock()
	for _, place := range standing {
		place.Lose()
	}
	for _, lost := range offers {
		v.host.local.Keep(lost.place)
		v.host.takeBackLater(ctx, lost.lock)
	}
}

func (h *host) takeBackLater(ctx context.Context, granted *v1alpha1.Lock) {
	h.later(func() {
		<-h.timers.After(takeBackAfter)
		_ = h.takeBack(ctx, granted)
	})
}

// later runs what ends a grant, and reports false if the line has ended.
func (h *host) later(end func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isOver {
		h.endings.Go(end)
	}
	return !h.isOver
}

// maxEndings is how long the line waits for the streams of other replicas to end before it ends.
const maxEndings = time.Second

// finish waits for the locks that are being taken back. The server that the streams have come to is stopped
// beside it.
func (h *host) finish() {
	h.mu.Lock()
	h.isFinishing = true
	if len(h.visits) == 0 {
		h.signalGone()
	}
	h.mu.Unlock()
	timer := h.timers.NewTimer(maxEndings)
	defer timer.Stop()
	select {
	case <-h.gone:
	case <-timer.C():
	}
	h.mu.Lock()
	h.isOver = true
	h.mu.Unlock()
	h.endings.Wait()
}

// signalGone needs the mutex.
func (h *host) signalGone() {
	select {
	case h.gone <- struct{}{}:
	default:
	}
}
