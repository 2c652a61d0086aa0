package keywatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server keeps locks and what has happened to them.
type server struct {
	// isOld has it not stream lists, and list what was true up to maxLag changes ago.
	isOld  bool
	maxLag int

	mu sync.Mutex
	// random says how old a list is.
	random   *rand.Rand
	history  []watch.Event
	watches  map[*serverWatch]struct{}
	requests []string
}

// restore goes back to before the first change, and ends all watches.
func (s *server) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = nil
	for open := range s.watches {
		delete(s.watches, open)
		close(open.events)
	}
}

func newServer() *server {
	return &server{
		random:  rand.New(rand.NewPCG(1, 0)),
		watches: map[*serverWatch]struct{}{},
	}
}

// serverWatch is an open watch. Its channel never blocks the server.
type serverWatch struct {
	server *server
	name   types.NamespacedName
	events chan watch.Event
}

func (w *serverWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *serverWatch) Stop() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if _, ok := w.server.watches[w]; ok {
		delete(w.server.watches, w)
		close(w.events)
	}
}

func (w *serverWatch) show(event watch.Event) {
	if event.Type == watch.Bookmark || isOf(w.name, lockOf(event.Object)) {
		w.events <- event
	}
}

func lockOf(object any) *v1alpha1.Lock { return object.(*v1alpha1.Lock) }

func isOf(name types.NamespacedName, lock *v1alpha1.Lock) bool {
	return name == types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}

// Open is that of keywatch.Options.
func (s *server) Open(name types.NamespacedName) (cache.ListerWatcher, func()) {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return s.list(name), nil },
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return s.watch(name, options)
		},
	}, func() {}
}

func (s *server) request(verb string, name types.NamespacedName) {
	s.requests = append(s.requests, verb+" "+name.Name)
}

func (s *server) list(name types.NamespacedName) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.request("list", name)
	at := len(s.history) - s.random.IntN(min(len(s.history), s.maxLag)+1)
	list := &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(at + 1)}}
	for _, lock := range s.state(at) {
		if isOf(name, lock) {
			list.Items = append(list.Items, *lock)
		}
	}
	return list
}

// state returns the locks after so many changes.
func (s *server) state(changes int) map[types.NamespacedName]*v1alpha1.Lock {
	state := map[types.NamespacedName]*v1alpha1.Lock{}
	for _, event := range s.history[:changes] {
		lock := lockOf(event.Object)
		name := types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
		if event.Type == watch.Deleted {
			delete(state, name)
		} else {
			state[name] = lock
		}
	}
	return state
}

func (s *server) watch(name types.NamespacedName, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streamsList := options.SendInitialEvents != nil && *options.SendInitialEvents
	if streamsList && s.isOld {
		return nil, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), "", nil)
	}
	s.request("watch", name)
	seen, err := strconv.Atoi(options.ResourceVersion)
	switch {
	case streamsList:
	case err != nil:
		return nil, err
	case seen > len(s.history)+1:
		return nil, apierrors.NewResourceExpired("too new")
	}
	opened := &serverWatch{server: s, name: name, events: make(chan watch.Event, 100_000)}
	s.watches[opened] = struct{}{}
	if streamsList {
		for _, lock := range s.state(len(s.history)) {
			opened.show(watch.Event{Type: watch.Added, Object: lock})
		}
		opened.show(s.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		return opened, nil
	}
	for _, event := range s.history[seen-1:] {
		opened.show(event)
	}
	return opened, nil
}

func (s *server) bookmark(annotations map[string]string) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(len(s.history) + 1), Annotations: annotations,
	}}}
}

// sendBookmarks tells all watches up to when they are complete.
func (s *server) sendBookmarks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for open := range s.watches {
		open.show(s.bookmark(nil))
	}
}

// write stores a lock, or deletes it, and returns it.
func (s *server) write(name types.NamespacedName, change watch.EventType) *v1alpha1.Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, ResourceVersion: strconv.Itoa(len(s.history) + 2),
	}}
	event := watch.Event{Type: change, Object: lock}
	s.history = append(s.history, event)
	for open := range s.watches {
		open.show(event)
	}
	return lock
}

// made returns and forgets the requests made so far.
func (s *server) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.requests
	s.requests = nil
	return made
}

// open returns the locks that are watched.
func (s *server) open() (names []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for open := range s.watches {
		names = append(names, open.name)
	}
	return names
}

// present returns the versions of all locks.
func (s *server) present() map[types.NamespacedName]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[types.NamespacedName]string{}
	for name, lock := range s.state(len(s.history)) {
		versions[name] = lock.ResourceVersion
	}
	return versions
}

// recorder is the handler: it keeps what it is told.
type recorder struct {
	mu sync.Mutex
	// locks are those that exist as far as it knows.
	locks map[types.NamespacedName]string
	// newest is the newest version that was told of a name since it was forgotten.
	newest map[types.NamespacedName]string
	// told is what was told of each name last.
	told map[types.NamespacedName]string
	// wrong is what must not happen.
	wrong []string
}

func newRecorder() *recorder {
	return &recorder{locks: map[types.NamespacedName]string{}, newest: map[types.NamespacedName]string{}, told: map[types.NamespacedName]string{}}
}

func (r *recorder) record(object any, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	lock := lockOf(object)
	name := types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
	isOver := what != "deleted" && r.told[name] == "deleted"
	if newest := r.newest[name]; rules.IsNewer(newest, lock.ResourceVersion) || isOver && newest == lock.ResourceVersion {
		r.wrong = append(r.wrong, fmt.Sprintf("%s %s of %s after %s", what, lock.ResourceVersion, name, newest))
	}
	if _, exists := r.locks[name]; what == "added" && exists || what == "changed" && !exists {
		r.wrong = append(r.wrong, fmt.Sprintf("%s %s of %s, which exists: %v", what, lock.ResourceVersion, name, exists))
	}
	r.newest[name], r.told[name] = lock.ResourceVersion, what
	if what == "deleted" {
		delete(r.locks, name)
	} else {
		r.locks[name] = lock.ResourceVersion
	}
}

func (r *recorder) OnAdd(object any, _ bool) { r.record(object, "added") }

func (r *recorder) OnUpdate(_, object any) { r.record(object, "changed") }

func (r *recorder) OnDelete(object any) { r.record(object, "deleted") }

func (r *recorder) OnAbsent(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version, exists := r.locks[name]; exists {
		r.wrong = append(r.wrong, fmt.Sprintf("%s is absent but exists as %s", name, version))
	}
	r.told[name] = "absent"
}

func (r *recorder) OnForget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.locks, name)
	delete(r.newest, name)
	r.told[name] = "forgotten"
}

// last returns what was told of a lock last.
func (r *recorder) last(name types.NamespacedName) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[name]
}

// wasTold reports whether a state of a lock was told since it was forgotten.
func (r *recorder) wasTold(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest[name] != ""
}
