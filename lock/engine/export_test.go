package engine

import (
	"sync"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// KnownGrants returns how many grants the engine remembers.
func (e *Engine) KnownGrants() int {
	e.lockCache.mu.Lock()
	defer e.lockCache.mu.Unlock()
	number := 0
	for _, locks := range e.lockCache.locks {
		for _, of := range locks {
			if of.own != nil {
				number++
			}
		}
	}
	return number
}

// TestStream is a stream whose watch a test opens and closes.
type TestStream struct {
	*WatchStream

	mu   sync.Mutex
	open watch.Interface
}

// NewTestStream returns a stream that is open until the test ends.
func NewTestStream(t *testing.T) *TestStream {
	t.Helper()
	s := &TestStream{WatchStream: NewWatchStream(clock.RealClock{}, logr.Discard())}
	s.Open()
	t.Cleanup(s.Close)
	return s
}

// Open opens a watch.
func (s *TestStream) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.stream(watch.NewFake(), metav1.ListOptions{})
}

// Close closes the watch.
func (s *TestStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Stop()
}

// Wrap exposes wrap.
func (s *WatchStream) Wrap(source cache.ListerWatcher) cache.ListerWatcherWithContext {
	return cache.ToListerWatcherWithContext(s.wrap(source))
}

// NewPart exposes newPart.
func (s *WatchStream) NewPart() (part *WatchStream, forget func()) { return s.newPart() }

// IsOpen reports whether the watch is open.
func (s *WatchStream) IsOpen() bool {
	isOpen, _ := s.state()
	return isOpen
}

// DrawFrom has the engine draw its random numbers from a source of the test. It must be called before any caller waits.
func (e *Engine) DrawFrom(random func() float64) { e.queues.random = random }
