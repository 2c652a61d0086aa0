package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxStreamPause bounds the pauses that an answer can ask for: one of a proxy may name an hour.
const maxStreamPause = 2 * time.Second

// WatchStream stands between an informer of Locks and the API server, and knows whether the
// informer's watch is open. It also opens the watch again within two seconds of the API server's
// return: the informers of client-go pause for up to a minute by then. Engines that share an
// informer share its stream. Safe for concurrent use.
type WatchStream struct {
	clock clock.WithTicker
	log   logr.Logger

	mu sync.Mutex
	// open is nil while there is no watch that has sent its initial list.
	open *streamedWatch
	// since is when the watch was opened or closed last.
	since time.Time
	// isReported says that the log tells of a request that failed since the watch was open.
	isReported bool
	// changed receives a value, unless it has one already, when the watch was opened or closed.
	changed []chan<- struct{}
}

// NewWatchStream returns a stream for one informer. It measures durations by the local clock of a
// [servertime.Clock].
func NewWatchStream(clock clock.WithTicker, logger logr.Logger) *WatchStream {
	timers := servertime.Timers(clock)
	return &WatchStream{clock: timers, log: logger, since: timers.Now()}
}

// NewInformer returns a shared informer whose requests pass through the stream if it is for Locks,
// and a usual one otherwise. It has the signature that NewInformer of controller-runtime's
// cache.Options has.
func (s *WatchStream) NewInformer(source cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	if _, ok := object.(*v1alpha1.Lock); ok {
		source = s.wrap(source)
	}
	return cache.NewSharedIndexInformer(source, object, resync, indexers)
}

func (s *WatchStream) wrap(source cache.ListerWatcher) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
			err = s.persist(ctx, func() error {
				list, err = from.ListWithContext(ctx, options)
				return err
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			var opened watch.Interface
			err := s.persist(ctx, func() (err error) {
				opened, err = from.WatchWithContext(ctx, options)
				return err
			})
			if err != nil {
				return nil, err
			}
			return s.stream(opened, options), nil
		},
	}
}

// persist repeats a request until it succeeds, ctx ends, or the informer itself must react to the
// error.
func (s *WatchStream) persist(ctx context.Context, request func() error) error {
	backoff := newBackoff()
	for {
		err := request()
		if err == nil || ctx.Err() != nil || isForInformer(err) {
			return err
		}
		s.failed(err)
		pause := backoff.Step()
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, min(time.Duration(seconds)*time.Second, maxStreamPause))
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.clock.After(pause):
		}
	}
}

// isForInformer reports whether the same request would never succeed. An informer then lists anew,
// lists without streaming, or pauses.
func isForInformer(err error) bool {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err):
	default:
		return false
	}
	return true
}

// stream returns the watch, and takes part in its life from now on.
func (s *WatchStream) stream(source watch.Interface, options metav1.ListOptions) watch.Interface {
	streamed := &streamedWatch{
		source: source, owner: s,
		events: make(chan watch.Event), stopped: make(chan struct{}),
	}
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		s.opened(streamed)
	}
	go streamed.forward()
	return streamed
}

func (s *WatchStream) opened(opened *streamedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-opened.stopped:
		return
	default:
	}
	if s.isReported {
		s.log.Info("Watching locks again")
	}
	s.open, s.since, s.isReported = opened, s.clock.Now(), false
	s.signal()
}

func (s *WatchStream) closed(closed *streamedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != closed {
		return // It was replaced, or never complete.
	}
	s.open, s.since = nil, s.clock.Now()
	s.signal()
}

// failed logs the first request that failed since the watch was open.
func (s *WatchStream) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReported {
		return
	}
	s.isReported = true
	s.log.Error(err, "Cannot watch locks, trying again until it succeeds; waiting callers cost reads meanwhile")
}

func (s *WatchStream) signal() {
	for _, changed := range s.changed {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// subscribe has the channel, which must be buffered, signalled after each change.
func (s *WatchStream) subscribe(changed chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, changed)
}

// state reports whether the watch is open, and since when it is or is not.
func (s *WatchStream) state() (isOpen bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = notAfter(s.since, s.clock.Now())
	return s.open != nil, s.since
}

// reopen closes a watch that has been open for the given time. The informer opens the next, which
// goes on where this one was, perhaps on another connection.
func (s *WatchStream) reopen(age time.Duration) {
	s.mu.Lock()
	opened := s.open
	isDue := opened != nil && s.clock.Since(s.since) >= age
	s.mu.Unlock()
	if isDue {
		s.log.Info("The watch of locks shows nothing, opening it anew", "openFor", age.String())
		opened.Stop()
	}
}

// streamedWatch passes the events of a watch on and tells its stream of its beginning and end.
type streamedWatch struct {
	source  watch.Interface
	owner   *WatchStream
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements [watch.Interface].
func (w *streamedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements [watch.Interface].
func (w *streamedWatch) Stop() {
	w.once.Do(func() {
		close(w.stopped)
		w.source.Stop()
		w.owner.closed(w)
	})
}

// forward ends with the watch, whether or not the informer still receives.
func (w *streamedWatch) forward() {
	defer close(w.events)
	defer w.Stop()
	for {
		select {
		case <-w.stopped:
			return
		case event, ok := <-w.source.ResultChan():
			if !ok {
				return
			}
			select {
			case <-w.stopped:
				return
			case w.events <- event:
			}
			if endsInitialList(event) {
				w.owner.opened(w)
			}
		}
	}
}

func endsInitialList(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	bookmark, err := apimeta.Accessor(event.Object)
	return err == nil && bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
