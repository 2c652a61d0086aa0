package keywatch

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// source lists and watches the lock of one use. The mutex of its informer guards its fields.
type source struct {
	informer *Informer
	use      *use
	// isSynced says that it has listed.
	isSynced bool
	// version is up to which resourceVersion it has shown what happened.
	version string
	// lock is nil if there is none.
	lock *v1alpha1.Lock
	// isClosed says that nothing is to be reported any more.
	isClosed bool
	stop     func()
}

var _ cache.ReflectorStore = (*source)(nil)

// open starts a source. Its goroutines end after close, or with Run.
func (i *Informer) open(of *use) *source {
	listed, closed := i.options.Open(of.name)
	ctx, cancel := context.WithCancel(i.running)
	opened := &source{
		informer: i, use: of,
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
func (s *source) Add(object any) error { return s.Update(object) }

// Update implements [cache.ReflectorStore].
func (s *source) Update(object any) error {
	if shown, ok := object.(*v1alpha1.Lock); ok {
		s.show(shown, nil, shown.ResourceVersion)
	}
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *source) Delete(object any) error {
	if final, ok := object.(*v1alpha1.Lock); ok {
		s.show(nil, final, final.ResourceVersion)
	}
	return nil
}

// Replace implements [cache.ReflectorStore]: the source has listed at a version. That holds even if it is older than what
// was shown: etcd was restored from a backup.
func (s *source) Replace(objects []any, version string) error {
	var listed *v1alpha1.Lock
	for _, object := range objects {
		if shown, ok := object.(*v1alpha1.Lock); ok {
			listed = shown
		}
	}
	s.show(listed, nil, version)
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
		s.informer.settle(s.use, nil)
	}
}

// show takes in the lock as it was at a version, or nil and how it has ended, if that was seen.
func (s *source) show(shown, final *v1alpha1.Lock, version string) {
	s.informer.mu.Lock()
	defer s.informer.mu.Unlock()
	if s.isClosed {
		return
	}
	s.isSynced, s.lock, s.version = true, shown, version
	s.informer.settle(s.use, final)
}
