// Package keywatch watches the locks that a program uses, each by a watch of its own.
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
	// MaxNames is how many locks are watched at most. Each watch is a stream of the program's connection, of which the
	// API server permits a hundred, and a few goroutines in either.
	MaxNames = 64
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
	// Open returns what lists and watches one lock, and a function that is called when that is no longer used.
	Open func(name types.NamespacedName) (source cache.ListerWatcher, closed func())
	// Clock measures how long locks are in use.
	Clock clock.WithTicker
}

// Informer reports changes to the locks in use, up to [MaxNames]. The states of each lock are reported in the order
// of their resourceVersions. Safe for concurrent use.
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
	// watched are the uses with a source.
	watched map[*use]struct{}
	// brief are the uses that may be brief, the oldest first.
	brief []briefUse
}

// use is the use of one lock.
type use struct {
	name types.NamespacedName
	// holders is how many have called Use and not released; a use with none is kept for its source.
	holders   int
	idleSince time.Time
	// waiting is how many of them said that their use is not brief: they wait for news of the lock.
	waiting int
	// isDue says that it needs a watch.
	isDue bool
	// source is nil if the use may be brief, or too many others have one. A use with waiting ones comes before the rest.
	source *source
	// shown is the lock as reported; nil if it does not exist, which the handler knows if isTold.
	shown  *v1alpha1.Lock
	isTold bool
	// known is a state that the user has seen, until the source has reached it; else nil.
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
		uses: map[types.NamespacedName]*use{}, watched: map[*use]struct{}{},
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
	i.coverAll() // the sources end with Run
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
	for used := range i.watched {
		if used.holders == 0 {
			earliest(used.idleSince.Add(KeepFor))
		}
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
	for used := range i.watched {
		if used.holders == 0 && now.Sub(used.idleSince) >= KeepFor {
			i.drop(used)
		}
	}
}

// Use has the changes of a lock reported until release is called: first its present state, unless
// that was reported before, or OnAbsent. Known is the lock as the user has seen it, or nil: if it is
// gone by the time that the informer watches, OnDelete tells so. A use that mayBeBrief opens no watch
// within the first second, and may lose its watch to one that is not brief if there is no room for both. A lock of
// another namespace is not watched, nor is one beyond [MaxNames] until another is used no longer.
func (i *Informer) Use(name types.NamespacedName, known *v1alpha1.Lock, mayBeBrief bool) (release func()) {
	if i.options.Namespace != "" && name.Namespace != i.options.Namespace {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	used := i.uses[name]
	if used == nil {
		used = &use{name: name}
		i.uses[name] = used
	}
	used.holders++
	if !mayBeBrief {
		used.waiting++
	}
	if used.shown == nil {
		used.isTold = false
		if known != nil && !used.hasReached(known) && (used.known == nil || rules.IsNewer(known.ResourceVersion, used.known.ResourceVersion)) {
			used.known = known
		}
	}
	if mayBeBrief && !used.isDue && used.source == nil {
		i.brief = append(i.brief, briefUse{use: used, until: i.options.Clock.Now().Add(BriefFor)})
		i.signal()
	} else {
		i.need(used)
	}
	return sync.OnceFunc(func() { i.release(used, !mayBeBrief) })
}

func (i *Informer) release(used *use, wasWaiting bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	used.holders--
	if wasWaiting {
		used.waiting--
	}
	if used.holders > 0 {
		if wasWaiting && used.waiting == 0 && used.source != nil {
			i.coverAll() // Its place is free for one that waits.
		}
		return
	}
	used.isDue = false
	if used.source == nil {
		delete(i.uses, used.name)
		return
	}
	used.idleSince = i.options.Clock.Now()
	i.coverAll()
	i.signal()
}

func (i *Informer) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// need opens a source for a use that is to be watched.
func (i *Informer) need(used *use) {
	used.isDue = true
	i.cover(used)
	i.settle(used, nil)
}

// cover opens a source for a use that is due, unless it has one, and reports whether there is room.
func (i *Informer) cover(used *use) (hasRoom bool) {
	switch {
	case i.running == nil:
		return false
	case used.source != nil:
		return true
	case len(i.watched) >= MaxNames && !i.dropIdlest() && (used.waiting == 0 || !i.dropHeld()):
		return false
	}
	used.source = i.open(used)
	i.watched[used] = struct{}{}
	return true
}

// coverAll opens sources for the uses that are due, as far as there is room: first for those that wait.
func (i *Informer) coverAll() {
	if len(i.uses) == len(i.watched) {
		return
	}
	for _, waits := range []bool{true, false} {
		for _, used := range i.uses {
			if used.isDue && used.waiting > 0 == waits && !i.cover(used) {
				return
			}
		}
	}
}

// dropHeld takes the place of a use that no one waits for, and reports whether there was one. Only the news that such a lock
// was taken from its holder is later for that, while who waits for a lock that others keep busy may miss each end of it.
func (i *Informer) dropHeld() bool {
	for used := range i.watched {
		if used.waiting == 0 {
			if used.shown != nil {
				used.known = used.shown // It is told of the end, should it have a place again.
			}
			i.uncover(used)
			return true
		}
	}
	return false
}

// dropIdlest drops the use that has been idle for longest, and reports whether there was one.
func (i *Informer) dropIdlest() bool {
	var idlest *use
	for used := range i.watched {
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
	i.uncover(idle)
	delete(i.uses, idle.name)
}

// uncover closes the source of a use.
func (i *Informer) uncover(used *use) {
	used.source.close()
	used.source, used.shown, used.isTold = nil, nil, false
	delete(i.watched, used)
	i.handler.OnForget(used.name)
}

// hasReached reports whether the source has shown what has happened up to a state.
func (u *use) hasReached(state *v1alpha1.Lock) bool {
	return u.source != nil && u.source.isSynced && !rules.IsNewer(state.ResourceVersion, u.source.version)
}

// settle reports what the source of a use shows, if that has changed, and is not behind what the user has seen. Final is
// the lock as the source has seen it end, or nil.
func (i *Informer) settle(used *use, final *v1alpha1.Lock) {
	from := used.source
	if from == nil || !from.isSynced || used.known != nil && !used.hasReached(used.known) {
		return
	}
	i.report(used, from.lock, final)
	used.shown, used.isTold, used.known = from.lock, true, nil
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
