package keywatch

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// source lists and watches one lock, or all. The mutex of its informer guards its fields.
type source struct {
	informer *Informer
	// name is empty if the source is that of all locks.
	name types.NamespacedName
	// isSynced says that it has listed.
	isSynced bool
	// version is up to which resourceVersion it has shown what happened.
	version string
	locks   map[types.NamespacedName]*v1alpha1.Lock
	// isClosed says that nothing is to be reported any more.
	isClosed bool
	stop     func()
}

var _ cache.ReflectorStore = (*source)(nil)

// open starts a source. Its goroutines end after close, or with Run.
func (i *Informer) open(name types.NamespacedName) *source {
	listed, closed := i.options.Open(name)
	ctx, cancel := context.WithCancel(i.running)
	opened := &source{
		informer: i, name: name, locks: map[types.NamespacedName]*v1alpha1.Lock{},
		stop: func() {
			closed()
			cancel()
		},
	}
	reflector := cache.NewReflectorWithOptions(listed, &v1alpha1.Lock{}, opened, cache.ReflectorOptions{Name: "locks"})
	i.sources.Go(func() { reflector.RunWithContext(ctx) })
	return opened
}

func (s *source) close() {
	s.isClosed = true
	s.stop()
}

// Add implements [cache.ReflectorStore].
func (s *source) Add(object any) error {
	s.change(object, false)
	return nil
}

// Update implements [cache.ReflectorStore].
func (s *source) Update(object any) error {
	s.change(object, false)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *source) Delete(object any) error {
	s.change(object, true)
	return nil
}

// Resync implements [cache.ReflectorStore]. The reflectors do not resync.
func (s *source) Resync() error { return nil }

// UpdateResourceVersion implements [cache.ResourceVersionUpdater]: a bookmark shows that nothing else
// has happened.
func (s *source) UpdateResourceVersion(version string) {
	s.informer.mu.Lock()
	defer s.informer.mu.Unlock()
	if !s.isClosed && rules.IsNewer(version, s.version) {
		s.version = version
		if used := s.informer.uses[s.name]; used != nil {
			s.informer.settle(used, nil)
		}
		s.informer.handOver(s)
	}
}

// Replace implements [cache.ReflectorStore]: the source has listed at a version.
func (s *source) Replace(objects []any, version string) error {
	i := s.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if s.isClosed {
		return nil
	}
	former := s.locks
	s.locks = make(map[types.NamespacedName]*v1alpha1.Lock, len(objects))
	for _, object := range objects {
		if shown, ok := object.(*v1alpha1.Lock); ok {
			s.locks[nameOf(shown)] = shown
		}
	}
	s.isSynced, s.version = true, version
	if s != i.wide {
		i.settleListed(s, i.uses[s.name])
	} else {
		for name, shown := range s.locks {
			i.pass(name, former[name], shown)
		}
		for name, last := range former {
			if s.locks[name] == nil {
				i.pass(name, last, nil)
			}
		}
		for _, used := range i.uses {
			i.settleListed(s, used)
		}
	}
	i.closeWide()
	return nil
}

// settleListed is settle after a list. A list of the source whose states are reported holds even if
// it is older than those: etcd was restored from a backup.
func (i *Informer) settleListed(listed *source, used *use) {
	if used.from == listed {
		used.version = ""
	}
	i.settle(used, nil)
}

// pass reports a state of the source of all locks, unless the lock is in use.
func (i *Informer) pass(name types.NamespacedName, former, shown *v1alpha1.Lock) {
	switch {
	case i.uses[name] != nil:
	case shown == nil:
		i.handler.OnDelete(unseenEnd(former))
	case former == nil:
		i.handler.OnAdd(shown, false)
	default:
		i.handler.OnUpdate(former, shown)
	}
}

func (s *source) change(object any, isGone bool) {
	shown, ok := object.(*v1alpha1.Lock)
	i := s.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if !ok || s.isClosed {
		return
	}
	name := nameOf(shown)
	former, final := s.locks[name], (*v1alpha1.Lock)(nil)
	if isGone {
		delete(s.locks, name)
		final = shown
	} else {
		s.locks[name] = shown
	}
	s.version = shown.ResourceVersion
	used := i.uses[name]
	switch {
	case used != nil:
		i.settle(used, final)
	case s != i.wide:
	case isGone:
		i.handler.OnDelete(final)
	default:
		i.pass(name, former, shown)
	}
	i.handOver(s)
}

// handOver goes on with what waits for a source to catch up.
func (i *Informer) handOver(progressed *source) {
	if i.isWide && progressed == i.wide {
		for used := range i.single {
			i.settle(used, nil)
		}
	}
	i.closeWide()
}

func nameOf(lock *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}
