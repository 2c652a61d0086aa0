package engine

import (
	"container/list"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

// Tracer follows waiting callers in distributed traces. It is safe for concurrent use, and must not block.
type Tracer interface {
	// BeginWait begins the span of a caller that waits for a lock, within the trace of ctx. It returns the
	// context of the span.
	BeginWait(ctx context.Context, namespace string, key v1alpha1.FullKey) (wait context.Context)
	// Within returns ctx for a request that is made on behalf of the waiting caller.
	Within(ctx, wait context.Context) context.Context
	// EndedBy says that a release, which has the context release, has ended the lock for which the caller
	// has waited. It is called before EndWait, or not at all: such as if no other replica has told of the release.
	EndedBy(wait, release context.Context)
	// EndWait ends the span. The error is nil if the caller is granted the lock.
	EndWait(wait context.Context, err error)
}

// noTracer follows nothing.
type noTracer struct{}

// BeginWait implements [Tracer].
func (noTracer) BeginWait(ctx context.Context, _ string, _ v1alpha1.FullKey) context.Context {
	return ctx
}

// Within implements [Tracer].
func (noTracer) Within(ctx, _ context.Context) context.Context { return ctx }

// EndedBy implements [Tracer].
func (noTracer) EndedBy(_, _ context.Context) {}

// EndWait implements [Tracer].
func (noTracer) EndWait(context.Context, error) {}

// waiter is a caller that waits for a lock.
type waiter struct {
	// span is the context of the caller's wait, for [Tracer] alone.
	span    context.Context // other goroutines make its requests
	request waiterRequest
	element *list.Element
	// since is when the caller came, or first came if it has taken its place up again.
	since time.Time
	// until is when the wait ends; zero if only the caller ends it.
	until time.Time
	// others is how many more of its caller wait, as known by the last of them.
	others int
	// isOut says that it waits no more.
	isOut bool
	// isAccepted says that another replica has let it wait, and isUnbounded that the bounds do not apply to it.
	isAccepted, isUnbounded bool
	// hasWaited says that another caller had the lock, or waited for it.
	hasWaited bool
	// The caller receives from outcome. The channel is unbuffered: a grant that the caller did not
	// take is known. It is nil if take is not.
	outcome chan outcome
	// take passes the outcome on to a caller at another replica.
	take func(*v1alpha1.Lock, error) (isTaken bool)
	// left is closed when the caller has left. It is nil if take is not, which tells by itself.
	left chan struct{}
	// isOverdue says that the wait is over and only the present try is awaited.
	isOverdue bool
	// hasTriedLast says that a try for it has begun since its wait was over.
	hasTriedLast bool
	// isUnsure says that a write for it may have happened, or may still happen, of which this engine alone knows. The mutex
	// of queues guards it.
	isUnsure bool
}

// waiterRequest is what is kept of the request of a waiter.
type waiterRequest struct {
	rules.Acquisition
	priority int32
	door     string
}

// caller returns who waits.
func (w *waiter) caller(of types.NamespacedName) places.Caller {
	return places.CallerOf(of, &w.request.Acquisition)
}

// place returns where it stands.
func (w *waiter) place(of types.NamespacedName) places.Place {
	return places.Place{Caller: w.caller(of), Since: w.since}
}

// waiterIndex finds waiters by a hash, which takes less memory than texts. Those that look check what they find.
type waiterIndex map[uint64]*waiter

func (x waiterIndex) find(hash uint64) *waiter { return x[hash] }

func (x *waiterIndex) put(hash uint64, joined *waiter) {
	if *x == nil {
		*x = waiterIndex{}
	}
	(*x)[hash] = joined
}

func (x waiterIndex) remove(hash uint64, gone *waiter) {
	if x[hash] == gone {
		delete(x, hash)
	}
}

var hashSeed = maphash.MakeSeed()

func hashOf[T comparable](of T) uint64 { return maphash.Comparable(hashSeed, of) }

// waiterFor returns a waiter for a request that comes now.
func waiterFor(request lock.Request, now time.Time) *waiter {
	joined := &waiter{request: waiterRequest{request.Acquisition, request.Priority, request.Door}, since: now, isAccepted: !request.PlaceSince.IsZero(), isUnbounded: request.IsUnbounded}
	if since := request.Since; !since.IsZero() && since.Before(now) {
		joined.since = since
	}
	if request.Wait < lock.WaitForever {
		joined.until = joined.since.Add(request.Wait)
	}
	if joined.isAccepted && request.PlaceSince.Before(joined.since) {
		joined.since = request.PlaceSince
	}
	return joined
}

type outcome struct {
	lock *v1alpha1.Lock
	err  error
}

// shareText saves the memory of what another waiter says in the same words.
func (w *waiter) shareText(other *waiter) {
	own, its := &w.request, &other.request
	for _, text := range []struct{ own, its *string }{
		{(*string)(&own.Scope), (*string)(&its.Scope)}, {&own.Key, &its.Key}, {&own.Function, &its.Function}, {&own.door, &its.door},
		{&own.Holder, &its.Holder}, {&own.HolderUID, &its.HolderUID}, {&own.Reason, &its.Reason},
	} {
		if *text.own == *text.its {
			*text.own = *text.its
		}
	}
	if own.HolderRef != nil && its.HolderRef != nil && *own.HolderRef == *its.HolderRef {
		own.HolderRef = its.HolderRef
	}
}

// precedes reports whether the waiter is served before another one. One whose time is still to come has come by now: the
// clock was set back since.
func (w *waiter) precedes(other *waiter, now time.Time) bool {
	if w.request.priority != other.request.priority {
		return w.request.priority > other.request.priority
	}
	return notAfter(other.since, now).After(w.since)
}

// goAway records that the caller has left.
func (w *waiter) goAway() {
	if w.left != nil {
		close(w.left)
	}
}

// deliver gives the outcome to the caller. It returns false if the caller has left.
func (w *waiter) deliver(result outcome) bool {
	if w.take != nil {
		return w.take(result.lock, result.err)
	}
	select {
	case w.outcome <- result:
		return true
	case <-w.left:
		return false
	}
}

// Waits returns what the engine knows of the callers that wait now. It takes time in proportion to the
// locks that are waited for.
func (e *Engine) Waits() observe.Waits {
	waits := e.queues.waits(e.clock.Now(), e.graceNow())
	waits.LookedFor = e.orphans.lookedFor()
	return waits
}

func (q *queues) waits(now time.Time, grace time.Duration) observe.Waits {
	q.mu.Lock()
	defer q.mu.Unlock()
	waits := observe.Waits{Namespaces: map[string]observe.NamespaceWaits{}}
	longestLine := 0
	for name, queue := range q.byName {
		head := queue.head()
		if head == nil {
			continue
		}
		longestLine = max(longestLine, queue.bounded())
		of := waits.Namespaces[name.Namespace]
		of.Callers += queue.waiters.Len()
		waited := now.Sub(queue.oldest())
		of.Longest = max(of.Longest, waited)
		waits.Namespaces[name.Namespace] = of
		if free, isFree := queue.freeSince(now, grace); isFree {
			waits.FreeFor = max(waits.FreeFor, min(now.Sub(free), waited))
		}
	}
	waits.Lines = q.standing.usage(longestLine)
	return waits
}

// oldest returns when the first of those that wait came. Within a priority they are in that order.
func (q *queue) oldest() time.Time {
	first := q.head().since
	if last := q.waiters.Back().Value.(*waiter); last.request.priority == q.head().request.priority {
		return first
	}
	for element := q.waiters.Front(); element != nil; element = element.Next() {
		if since := element.Value.(*waiter).since; since.Before(first) {
			first = since
		}
	}
	return first
}

// freeSince returns since when the lock has been free as far as the engine knows, and false if it is not.
func (q *queue) freeSince(now time.Time, grace time.Duration) (time.Time, bool) {
	if q.seen.lock == nil {
		return q.freedAt, true
	}
	if left := rules.UntilReclaimable(q.seen.lock, now, grace); left <= 0 {
		return now.Add(left), true
	}
	return time.Time{}, false
}

// WaitedFor calls each with every lock that callers of this engine wait for and another holder has, as far as
// the engine knows, and how many wait. The locks must not be modified.
func (e *Engine) WaitedFor(each func(held *v1alpha1.Lock, callers int)) {
	type waitedFor struct {
		lock    *v1alpha1.Lock
		callers int
	}
	e.queues.mu.Lock()
	var all []waitedFor
	for _, queue := range e.queues.byName {
		if queue.seen.lock != nil && queue.head() != nil {
			all = append(all, waitedFor{queue.seen.lock, queue.waiters.Len()})
		}
	}
	e.queues.mu.Unlock()
	for _, of := range all {
		each(of.lock, of.callers)
	}
}

// Waiters implements [lock.LineReader] for the callers that wait here.
func (e *Engine) Waiters(_ context.Context, namespace string, key v1alpha1.FullKey, limit int) (waiters []lock.Waiter, isComplete bool, err error) {
	waiters, isComplete = e.queues.list(namespace, key, limit)
	return waiters, isComplete, nil
}

func (q *queues) list(namespace string, key v1alpha1.FullKey, limit int) (found []lock.Waiter, isComplete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := q.names(namespace, key)
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	all := 0
	for _, name := range names {
		queue := q.byName[name]
		all += queue.waiters.Len()
		found = queue.list(found, limit)
	}
	return found, len(found) == all
}

// names returns the queues of a lock, of a namespace, or all. The mutex must be held.
func (q *queues) names(namespace string, key v1alpha1.FullKey) []types.NamespacedName {
	var names []types.NamespacedName
	if key != "" {
		name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
		if q.byName[name] != nil {
			names = append(names, name)
		}
		return names
	}
	for name := range q.byName {
		if namespace == "" || name.Namespace == namespace {
			names = append(names, name)
		}
	}
	return names
}

// Lines implements [lock.LineCounter] for the callers that wait here.
func (e *Engine) Lines(_ context.Context, namespace string, key v1alpha1.FullKey, limit int) (lines []lock.Line, isComplete bool, err error) {
	q := e.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range q.names(namespace, key) {
		queue := q.byName[name]
		head := queue.head()
		switch {
		case head == nil:
		case len(lines) >= limit:
			return lines, false, nil
		default:
			lines = append(lines, lock.Line{
				Namespace: name.Namespace, Scope: head.request.Scope, Function: head.request.Function, Key: head.request.Key,
				Waiting: queue.waiters.Len(),
			})
		}
	}
	return lines, true, nil
}

// list appends the waiters of the queue until there are limit.
func (q *queue) list(found []lock.Waiter, limit int) []lock.Waiter {
	place := 0
	for element := q.waiters.Front(); element != nil && len(found) < limit; element = element.Next() {
		place++
		waiter := element.Value.(*waiter)
		found = append(found, lock.Waiter{
			Namespace: q.name.Namespace, Scope: waiter.request.Scope, Function: waiter.request.Function, Key: waiter.request.Key,
			Place: place, Priority: waiter.request.priority, Holder: waiter.request.Holder, HolderRef: waiter.request.HolderRef, Reason: waiter.request.Reason, Door: waiter.request.door,
			Since: waiter.since, Until: waiter.until,
		})
	}
	return found
}

// WaiterLimits bounds how many callers wait in one engine. Zero means any number.
type WaiterLimits struct {
	// PerLock, PerNamespace and PerHolder are for one lock, the locks of one namespace and one
	// [rules.Acquisition]'s Holder.
	PerLock, PerNamespace, PerHolder int
}

// standing counts the callers that wait, but for those to which the bounds do not apply.
type standing struct {
	limits                WaiterLimits
	byNamespace, byHolder map[string]int
}

// maxReturned is how many times a bound those may fill that come back to their places. Without it, callers that leave
// and come again in turns could make a line of any length.
const maxReturned = 2

// count counts a waiter that comes or goes: against the bounds, or as one of those to which they do not apply.
func (q *queue) count(of *waiter, number int) {
	if of.isUnbounded {
		q.unbounded += number
		return
	}
	q.counted.add(q.name.Namespace, of.request.Holder, number)
}

// bounded is how many wait to which the bounds apply.
func (q *queue) bounded() int { return q.waiters.Len() - q.unbounded }

// check reports what is full for one more, for whose lock inLine callers wait that count. One that returns to a place that was kept
// was counted when it came first, and is let in beyond the bounds that others have filled since.
func (s *standing) check(namespace, holder string, inLine int, returns bool) *lock.LineFullError {
	times := 1
	if returns {
		times = maxReturned
	}
	for _, of := range []struct {
		bound         lock.LineBound
		waiting, most int
	}{
		{lock.LinePerLock, inLine, s.limits.PerLock},
		{lock.LinePerNamespace, s.byNamespace[namespace], s.limits.PerNamespace},
		{lock.LinePerHolder, s.byHolder[holder], s.limits.PerHolder},
	} {
		if of.most > 0 && of.waiting >= times*of.most {
			return &lock.LineFullError{Bound: of.bound, Waiting: of.waiting}
		}
	}
	return nil
}

// checkRoom reports whether one more may wait in the queue, which is nil for a new one. The error is a
// [*lock.LineFullError].
func (q *queues) checkRoom(known *queue, name types.NamespacedName, joined *waiter, now time.Time) error {
	if joined.isAccepted || joined.isUnbounded {
		return nil
	}
	inLine, uncounted := 0, 0
	if known != nil {
		inLine, uncounted = known.bounded(), known.unbounded
	}
	full := q.standing.check(name.Namespace, joined.request.Holder, inLine, q.kept.Has(joined.caller(name), now))
	if full == nil {
		return nil
	}
	full.Uncounted = uncounted
	return full
}

// usage returns how much of each limit is used, if so many callers wait in the longest line.
func (s *standing) usage(longestLine int) observe.LineUsage {
	return observe.LineUsage{
		PerLock:      ratio(longestLine, s.limits.PerLock),
		PerNamespace: ratio(most(s.byNamespace), s.limits.PerNamespace),
		PerHolder:    ratio(most(s.byHolder), s.limits.PerHolder),
	}
}

func most(counts map[string]int) (largest int) {
	for _, count := range counts {
		largest = max(largest, count)
	}
	return largest
}

// ratio is 0 without a limit.
func ratio(waiting, limit int) float64 {
	if limit <= 0 {
		return 0
	}
	return float64(waiting) / float64(limit)
}

func (s *standing) add(namespace, holder string, number int) {
	if s.byNamespace == nil {
		s.byNamespace, s.byHolder = map[string]int{}, map[string]int{}
	}
	for _, of := range []struct {
		counts map[string]int
		key    string
	}{{s.byNamespace, namespace}, {s.byHolder, holder}} {
		if of.counts[of.key] += number; of.counts[of.key] == 0 {
			delete(of.counts, of.key)
		}
	}
}
