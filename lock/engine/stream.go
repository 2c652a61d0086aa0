package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxStreamPause bounds the pauses that an answer can ask for: one of a proxy may name an hour.
const maxStreamPause = 2 * time.Second

// WatchStream stands between an informer of Locks and the API server, and knows whether the
// informer's watch is open. It also opens the watch again within two seconds of the API server's
// return: the informers of client-go pause for up to a minute by then. Engines that share an
// informer share its stream. The stream of a [KeyInformer] has a part for each of its watches, and
// is open while all parts are. Safe for concurrent use.
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
	// isReached says that the API server has answered a list or a watch, and hasOpened that a watch was open.
	isReached, hasOpened bool
	// changed receives a value, unless it has one already, when the watch was opened or closed.
	changed []chan<- struct{}

	// whole is the stream that this one is a part of, or nil.
	whole *WatchStream
	// parts are the parts whose informers have listed, and whether each is open: before that, no
	// engine relies on what one shows. Nil if there are no parts.
	parts map[*WatchStream]bool
	// isForgotten says that the part is no longer used. The mutex of the whole guards it.
	isForgotten bool
}

// NewWatchStream returns a stream for one informer. It measures durations by the local clock of a
// [servertime.Clock].
func NewWatchStream(clock clock.WithTicker, logger logr.Logger) *WatchStream {
	timers := servertime.Timers(clock)
	return &WatchStream{clock: timers, log: logger, since: timers.Now()}
}

// NewInformer returns a shared informer whose requests pass through the stream if it is for Locks,
// and a usual one otherwise. It has the signature that NewInformer of controller-runtime's
// cache.Options has. The informer keeps of Locks what [rules.Stripped] leaves: they
// must not be written before [rules.IsStripped] was asked.
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
			if err == nil {
				s.listed()
				stripAll(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if hasList(options) {
				options.TimeoutSeconds = new(int64(maxListTime / time.Second))
			}
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

// maxListTime bounds a watch that begins with a list. The informer asks for five to ten minutes, as for any watch, and
// begins anew when they are over; a busy API server takes longer to send a million locks.
const maxListTime = time.Hour

func hasList(options metav1.ListOptions) bool {
	return options.SendInitialEvents != nil && *options.SendInitialEvents
}

// stripAll reduces the Locks of a list to what caches keep.
func stripAll(list runtime.Object) {
	if page, ok := list.(*v1alpha1.LockList); ok {
		for i := range page.Items {
			page.Items[i] = *rules.Stripped(&page.Items[i])
		}
	}
}

// persist repeats a request until it succeeds, ctx ends, or the informer itself must react to the
// error.
func (s *WatchStream) persist(ctx context.Context, request func() error) error {
	backoff := newBackoff()
	for {
		err := request()
		if err == nil {
			s.reached()
		}
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

func (s *WatchStream) reached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isReached = true
}

// isForInformer reports whether the same request would never succeed. An informer then lists anew,
// lists without streaming, or pauses.
func isForInformer(err error) bool {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), errors.Is(err, apianswers.ErrNotServed):
	default:
		return false
	}
	return true
}

// listed records that the informer has listed. Only then the watch of a part counts.
func (s *WatchStream) listed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole != nil {
		s.whole.partChanged(s, s.open != nil)
	}
}

// stream returns the watch, and takes part in its life from now on.
func (s *WatchStream) stream(source watch.Interface, options metav1.ListOptions) watch.Interface {
	streamed := &streamedWatch{source: source, owner: s, events: make(chan watch.Event), stopped: make(chan struct{})}
	if !hasList(options) {
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
	s.open, s.since, s.isReported, s.hasOpened = opened, s.clock.Now(), false, true
	if s.whole != nil {
		s.whole.partChanged(s, true)
	}
	s.signal()
}

func (s *WatchStream) closed(closed *streamedWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != closed {
		return // It was replaced, or never complete.
	}
	s.open, s.since = nil, s.clock.Now()
	if s.whole != nil {
		s.whole.partChanged(s, false)
	}
	s.signal()
}

// newPart returns a stream for one of several informers, and what to call before the informer ends.
func (s *WatchStream) newPart() (part *WatchStream, forget func()) {
	part = NewWatchStream(s.clock, s.log)
	part.whole = s
	return part, func() { s.forget(part) }
}

func (s *WatchStream) forget(part *WatchStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part.isForgotten = true
	s.changeParts(func() { delete(s.parts, part) })
}

// partChanged records whether the watch of a part is open. It is called with the mutex of the part.
func (s *WatchStream) partChanged(part *WatchStream, isOpen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if part.isForgotten {
		return
	}
	if s.parts == nil {
		s.parts = map[*WatchStream]bool{}
	}
	s.changeParts(func() { s.parts[part] = isOpen })
}

func (s *WatchStream) changeParts(change func()) {
	wasOpen := s.arePartsOpen()
	change()
	if wasOpen || s.arePartsOpen() {
		s.since = s.clock.Now()
	}
	s.signal()
}

// arePartsOpen reports whether there are parts, and the watch of each is open.
func (s *WatchStream) arePartsOpen() bool {
	for _, isOpen := range s.parts {
		if !isOpen {
			return false
		}
	}
	return len(s.parts) > 0
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
	return s.open != nil || s.arePartsOpen(), s.since
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
			isListOver := endsList(event)
			// A bookmark is no lock: its annotation says that the initial list is over.
			if shown, ok := event.Object.(*v1alpha1.Lock); ok && event.Type != watch.Bookmark {
				event.Object = rules.Stripped(shown)
			}
			if !w.send(event) {
				return
			}
			if isListOver {
				w.owner.opened(w)
			}
		}
	}
}

// endsList reports whether the event ends the initial list of a watch.
func endsList(event watch.Event) bool {
	shown, ok := event.Object.(metav1.Object)
	return ok && event.Type == watch.Bookmark && shown.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// send returns false if the watch was stopped first.
func (w *streamedWatch) send(event watch.Event) bool {
	select {
	case <-w.stopped:
		return false
	case w.events <- event:
		return true
	}
}
