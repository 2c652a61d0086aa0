package keywatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

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
	// lag is how many changes each list is behind, which its watch does not show either.
	lag int
	// refuse returns the error of a request for a name, or nil.
	refuse func(name types.NamespacedName) error

	mu sync.Mutex
	// random says how old a list is.
	random   *rand.Rand
	history  []watch.Event
	watches  map[*serverWatch]struct{}
	requests []string
}

// set changes the faults.
func (s *server) set(lag int, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
	s.refuse = func(types.NamespacedName) error { return failure }
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
		refuse:  func(types.NamespacedName) error { return nil },
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
	return name.Name == "" && (name.Namespace == "" || name.Namespace == lock.Namespace) ||
		name == types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}

// Open is that of keywatch.Options.
func (s *server) Open(name types.NamespacedName) (cache.ListerWatcher, func()) {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (list runtime.Object, err error) {
			err = persist(ctx, func() error {
				list, err = s.list(name)
				return err
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (opened watch.Interface, err error) {
			err = persist(ctx, func() error {
				opened, err = s.watch(name, options)
				return err
			})
			return opened, err
		},
	}, func() {}
}

// persist repeats a request, as the streams of the engine do.
func persist(ctx context.Context, request func() error) error {
	for {
		err := request()
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsResourceExpired(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (s *server) request(verb string, name types.NamespacedName) error {
	if err := s.refuse(name); err != nil {
		return err
	}
	s.requests = append(s.requests, verb+" "+name.Name)
	return nil
}

func (s *server) list(name types.NamespacedName) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request("list", name); err != nil {
		return nil, err
	}
	at := len(s.history) - s.lag - s.random.IntN(min(len(s.history), s.maxLag)+1)
	list := &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(at + 1)}}
	for _, lock := range s.state(at) {
		if isOf(name, lock) {
			list.Items = append(list.Items, *lock)
		}
	}
	return list, nil
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
	if err := s.request("watch", name); err != nil {
		return nil, err
	}
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
	for _, event := range s.history[seen-1 : max(seen-1, len(s.history)-s.lag)] {
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

// open returns the number of open watches of single locks and of all.
func (s *server) open() (single, wide int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for open := range s.watches {
		if open.name.Name == "" {
			wide++
		} else {
			single++
		}
	}
	return single, wide
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
