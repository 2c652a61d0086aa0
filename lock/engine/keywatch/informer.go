// Package keywatch watches the locks that a program uses, each by a watch of its own, and all locks
// of the namespace while it uses many.
package keywatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// MaxNames is how many locks are watched one by one. Each watch is a stream of the program's
	// connection, of which the API server permits a hundred, and a few goroutines in either. Beyond
	// that one watch of all locks costs less, although it shows those of other programs.
	MaxNames = 16
	// fewNames is how many locks in use end the watch of all, after narrowAfter: switching costs a
	// list of the namespace.
	fewNames    = MaxNames / 2
	narrowAfter = 5 * time.Minute
	// KeepFor is how long a lock is watched after its last use. So a program that uses a lock again
	// and again opens at most one watch a minute for it.
	KeepFor = time.Minute
	// BriefFor is how long a use that may be brief lasts before it opens a watch.
	BriefFor = time.Second
)

// Handler receives what the informer reports. It must not call the informer.
type Handler interface {
	cache.ResourceEventHandler
	// OnAbsent tells that a lock in use does not exist.
	OnAbsent(name types.NamespacedName)
	// OnForget tells that the changes of a lock are no longer reported.
	OnForget(name types.NamespacedName)
}

// Options configures an [Informer]. Every field is required, except Namespace.
type Options struct {
	// Namespace is that of the locks. Empty means all namespaces.
	Namespace string
	// Open returns what lists and watches one lock or, if the name is empty, all locks of the
	// namespace, and a function that is called when that is no longer used.
	Open func(name types.NamespacedName) (source cache.ListerWatcher, closed func())
	// Clock measures how long locks are in use.
	Clock clock.WithTicker
}

// Informer reports changes to the locks in use. The states of each lock are reported in the order
// of their resourceVersions, and none is lost while the informer changes between the watch of one
// lock and that of all. Safe for concurrent use.
type Informer struct {
	options Options
	// wake makes Run look again.
	wake chan struct{}
	// sources counts the goroutines of sources.
	sources sync.WaitGroup

	mu sync.Mutex
	// running ends with Run; nil unless Run is running.
	running context.Context // the lifetime of the sources
	handler Handler
	uses    map[types.NamespacedName]*use
	// inUse is how many uses need a watch.
	inUse int
	// single are the uses with a source of their own.
	single map[*use]struct{}
	// brief are the uses that may be brief, the oldest first.
	brief []briefUse
	// isWide says that all locks of the namespace are to be watched. Wide is their source, or nil;
	// it also exists until those that replace it have caught up.
	isWide bool
	wide   *source
	// crowdedAt is when more than fewNames locks were last in use.
	crowdedAt time.Time
}

// use is the use of one lock.
type use struct {
	name types.NamespacedName
	// holders is how many have called Use and not released; a use with none is kept for its source.
	holders   int
	idleSince time.Time
	// isDue says that it needs a watch.
	isDue bool
	// own is its own source, or nil.
	own *source
	// from is the source whose states are reported; nil if none is yet. Only one that has reached
	// version, the newest known, may be.
	from    *source
	version string
	// shown is the lock as reported; nil if it does not exist, which the handler knows if isTold.
	shown  *v1alpha1.Lock
	isTold bool
	// known is a state that the user has seen, until a source has reached it.
	known *v1alpha1.Lock
}

type briefUse struct {
	use   *use
	until time.Time
}

// New returns an informer that watches nothing yet.
func New(options Options) *Informer {
	return &Informer{
		options: options, wake: make(chan struct{}, 1),
		uses: map[types.NamespacedName]*use{}, single: map[*use]struct{}{},
	}
}

// AddEventHandler sets the handler, which must be a [Handler]; there can be only one. The
// registration is nil.
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	named, ok := handler.(Handler)
	if !ok || i.handler != nil {
		return nil, errors.New("keywatch: the informer takes one handler, which is told what is absent and forgotten")
	}
	i.handler = named
	return nil, nil // the handler stays for as long as the informer
}

// Run watches until ctx ends, and returns when all watches have ended. It is called once.
func (i *Informer) Run(ctx context.Context) {
	i.mu.Lock()
	i.running = ctx
	for _, used := range i.uses {
		if used.isDue {
			i.cover(used) // its source ends with Run
		}
	}
	i.mu.Unlock()
	defer i.sources.Wait()
	defer i.end()
	for i.await(ctx) {
		i.mu.Lock()
		i.adjust(i.options.Clock.Now()) // the sources end with Run
		i.mu.Unlock()
	}
}

func (i *Informer) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = nil
}

// await returns when adjust has something to do; false if ctx has ended.
func (i *Informer) await(ctx context.Context) bool {
	i.mu.Lock()
	now := i.options.Clock.Now()
	next := i.nextChange()
	i.mu.Unlock()
	var due <-chan time.Time
	if !next.IsZero() {
		timer := i.options.Clock.NewTimer(next.Sub(now))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-i.wake:
	case <-due:
	}
	return true
}

// nextChange returns when adjust has something to do unless the uses change; zero means never.
func (i *Informer) nextChange() time.Time {
	var next time.Time
	earliest := func(then time.Time) {
		if next.IsZero() || then.Before(next) {
			next = then
		}
	}
	if len(i.brief) > 0 {
		earliest(i.brief[0].until)
	}
	for used := range i.single {
		if used.holders == 0 {
			earliest(used.idleSince.Add(KeepFor))
		}
	}
	if i.isWide && i.inUse <= fewNames {
		earliest(i.crowdedAt.Add(narrowAfter))
	}
	return next
}

// adjust does what is due by now.
func (i *Informer) adjust(now time.Time) {
	for len(i.brief) > 0 && !i.brief[0].until.After(now) {
		if used := i.brief[0].use; used.holders > 0 {
			i.need(used)
		}
		i.brief = i.brief[1:]
	}
	for used := range i.single {
		if used.holders == 0 && now.Sub(used.idleSince) >= KeepFor {
			i.drop(used)
		}
	}
	if i.isWide && i.inUse <= fewNames && now.Sub(i.crowdedAt) >= narrowAfter {
		i.narrow()
	}
}

// Use has the changes of a lock reported until release is called: first its present state, unless
// that was reported before, or OnAbsent. Known is the lock as the user has seen it, or nil: if it is
// gone by the time that the informer watches, OnDelete tells so. A use that mayBeBrief opens no watch
// within the first second. A lock of another namespace is not watched.
func (i *Informer) Use(name types.NamespacedName, known *v1alpha1.Lock, mayBeBrief bool) (release func()) {
	if i.options.Namespace != "" && name.Namespace != i.options.Namespace {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	used := i.uses[name]
	if used == nil {
		used = i.join(name)
	}
	used.holders++
	if used.shown == nil {
		used.isTold = false
		if known != nil && (used.version == "" || rules.IsNewer(known.ResourceVersion, used.version)) {
			used.known, used.version = known, known.ResourceVersion
		}
	}
	switch {
	case used.isDue:
		i.settle(used, nil)
	case mayBeBrief && used.own == nil && !i.isWide:
		i.brief = append(i.brief, briefUse{use: used, until: i.options.Clock.Now().Add(BriefFor)})
		i.signal()
	default:
		i.need(used)
	}
	return sync.OnceFunc(func() { i.release(used) })
}

// join returns a new use, of which the handler knows what the source of all locks has shown.
func (i *Informer) join(name types.NamespacedName) *use {
	joined := &use{name: name}
	if i.wide != nil && i.wide.isSynced {
		joined.from, joined.shown, joined.version = i.wide, i.wide.locks[name], i.wide.version
	}
	i.uses[name] = joined
	return joined
}

func (i *Informer) release(used *use) {
	i.mu.Lock()
	defer i.mu.Unlock()
	used.holders--
	if used.holders > 0 {
		return
	}
	if used.isDue {
		used.isDue = false
		i.count(-1)
	}
	if used.own == nil {
		delete(i.uses, used.name)
		i.closeWide()
		return
	}
	used.idleSince = i.options.Clock.Now()
	i.signal()
}

func (i *Informer) count(change int) {
	if i.inUse > fewNames || i.inUse+change > fewNames {
		i.crowdedAt = i.options.Clock.Now()
	}
	i.inUse += change
	if i.isWide && i.inUse <= fewNames {
		i.signal()
	}
}

func (i *Informer) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// need makes a use due.
func (i *Informer) need(used *use) {
	if used.isDue {
		return
	}
	used.isDue = true
	i.count(1)
	i.cover(used)
	i.settle(used, nil)
}

// cover opens a source for a use that is due, unless it has one.
func (i *Informer) cover(used *use) {
	if i.running == nil || used.own != nil || i.isWide {
		return
	}
	if len(i.single) >= MaxNames && !i.dropIdlest() {
		i.isWide = true
		if i.wide == nil {
			i.wide = i.open(types.NamespacedName{Namespace: i.options.Namespace})
		}
		return
	}
	used.own = i.open(used.name)
	i.single[used] = struct{}{}
}

// dropIdlest drops the use that has been idle for longest, and reports whether there was one.
func (i *Informer) dropIdlest() bool {
	var idlest *use
	for used := range i.single {
		if used.holders == 0 && (idlest == nil || used.idleSince.Before(idlest.idleSince)) {
			idlest = used
		}
	}
	if idlest != nil {
		i.drop(idlest)
	}
	return idlest != nil
}

// drop ends a use without holders.
func (i *Informer) drop(idle *use) {
	i.closeOwn(idle)
	delete(i.uses, idle.name)
	if idle.from == i.wide && i.wide != nil {
		return
	}
	i.handler.OnForget(idle.name)
	if i.wide != nil && i.wide.isSynced {
		if shown := i.wide.locks[idle.name]; shown != nil {
			i.handler.OnAdd(shown, false)
		}
	}
}

func (i *Informer) closeOwn(used *use) {
	used.own.close()
	used.own = nil
	delete(i.single, used)
}

// narrow opens a source for each lock in use. The source of all locks is closed once they have
// caught up.
func (i *Informer) narrow() {
	i.isWide = false
	for _, used := range i.uses {
		if used.isDue {
			i.cover(used)
		}
	}
	i.closeWide()
}

// closeWide closes the source of all locks if it is no longer needed.
func (i *Informer) closeWide() {
	if i.isWide || i.wide == nil {
		return
	}
	for _, used := range i.uses {
		if used.isDue && used.from != used.own {
			return
		}
	}
	closed := i.wide
	i.wide = nil
	closed.close()
	for name := range closed.locks {
		if used := i.uses[name]; used == nil || used.from == closed {
			i.handler.OnForget(name)
		}
	}
	for _, used := range i.uses {
		if used.from == closed {
			used.from, used.shown, used.isTold = nil, nil, false
		}
	}
}

// settle reports what the source of a use shows, if that has changed. Final is the lock as the
// source has seen it end, or nil.
func (i *Informer) settle(used *use, final *v1alpha1.Lock) {
	from := i.sourceOf(used)
	if from == nil {
		return
	}
	used.from = from
	state := from.locks[used.name]
	i.report(used, state, final)
	used.shown, used.isTold, used.known = state, true, nil
	used.version = from.version
	if state != nil {
		used.version = state.ResourceVersion
	}
	if i.isWide && from == i.wide && used.own != nil {
		i.closeOwn(used)
		if used.holders == 0 {
			delete(i.uses, used.name)
		}
	}
}

// report tells the handler how the state differs from what was reported.
func (i *Informer) report(used *use, state, final *v1alpha1.Lock) {
	switch {
	case state != nil && used.shown == nil:
		i.handler.OnAdd(state, false)
	case state != nil && used.shown.ResourceVersion != state.ResourceVersion:
		i.handler.OnUpdate(used.shown, state)
	case state != nil:
	case used.shown != nil && final != nil:
		i.handler.OnDelete(final)
	case used.shown != nil:
		i.handler.OnDelete(unseenEnd(used.shown))
	case used.known != nil:
		i.handler.OnDelete(unseenEnd(used.known))
	case !used.isTold:
		i.handler.OnAbsent(used.name)
	}
}

func unseenEnd(last *v1alpha1.Lock) cache.DeletedFinalStateUnknown {
	return cache.DeletedFinalStateUnknown{Key: last.Namespace + "/" + last.Name, Obj: last}
}

// sourceOf returns the source whose states of a lock are to be reported, or nil if each is behind
// what is known of the lock already.
func (i *Informer) sourceOf(used *use) *source {
	first, second := used.own, i.wide
	if i.isWide {
		first, second = second, first
	}
	for _, from := range []*source{first, second} {
		if from != nil && from.isSynced && !rules.IsNewer(used.version, from.version) {
			return from
		}
	}
	return nil
}
