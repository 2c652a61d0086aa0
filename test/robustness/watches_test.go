package robustness_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watches are the watches of locks that go through a proxy. They can be cut, refused,
// stalled, delayed, and lose deletes, while all other requests get through. Safe for
// concurrent use.
type watches struct {
	mu sync.Mutex
	// cancel ends the present watches.
	cancel map[*http.Request]context.CancelFunc
	// changed is closed when one of the fields below changes.
	changed chan struct{}
	// stalled holds all events back. A watch that is cut loses those that were held back.
	stalled bool
	// refused aborts new watches.
	refused bool
	// losing drops deletes.
	losing bool
	// lag is how long each event is held back.
	lag time.Duration
	// lost gets to know the name of a lock whose delete is dropped.
	lost func(name string)
}

func newWatches(lost func(name string)) *watches {
	return &watches{lost: lost, cancel: map[*http.Request]context.CancelFunc{}, changed: make(chan struct{})}
}

// change changes the fields.
func (w *watches) change(apply func(*watches)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	apply(w)
	close(w.changed)
	w.changed = make(chan struct{})
}

// cut ends the present watches.
func (w *watches) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cancel := range w.cancel {
		cancel()
	}
}

// begin registers a watch, and reports false if it is refused.
func (w *watches) begin(r *http.Request) (context.Context, func(), bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(r.Context())
	w.cancel[r] = cancel
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cancel, r)
	}, true
}

// await waits until the event that arrived then may be passed on, and reports whether to
// drop it and whether the watch goes on.
func (w *watches) await(ctx context.Context, event watchEvent) (isDropped, goesOn bool) {
	for {
		w.mu.Lock()
		stalled, losing, changed, due := w.stalled, w.losing, w.changed, time.Until(event.arrived.Add(w.lag))
		w.mu.Unlock()
		if !stalled && due <= 0 {
			return losing && bytes.HasPrefix(event.line, []byte(`{"type":"DELETED"`)), true
		}
		if stalled {
			due = time.Hour
		}
		timer := time.NewTimer(due)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, false
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

type watchEvent struct {
	line    []byte
	arrived time.Time
}

// name is that of the object that the event tells of.
func (e watchEvent) name() string {
	var event struct {
		Object metav1.PartialObjectMetadata `json:"object"`
	}
	_ = json.Unmarshal(e.line, &event) // An unknown name excuses no wait.
	return event.Object.Name
}

// serve passes a watch on, event by event.
func (w *watches) serve(out http.ResponseWriter, r *http.Request, send func(*http.Request) (*http.Response, error)) {
	ctx, end, ok := w.begin(r)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer end()
	response, err := send(r.WithContext(ctx)) //nolint:bodyclose // The goroutine below does.
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(out.Header(), response.Header)
	out.WriteHeader(response.StatusCode)
	flush := http.NewResponseController(out).Flush
	_ = flush()                             // An error shows at the next write.
	events := make(chan watchEvent, 100000) // What a stalled watch holds back.
	go func() {
		defer close(events)
		defer func() { _ = response.Body.Close() }()
		for lines := bufio.NewReader(response.Body); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case events <- watchEvent{line, time.Now()}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for event := range events {
		isDropped, goesOn := w.await(ctx, event)
		if !goesOn {
			panic(http.ErrAbortHandler)
		}
		if isDropped {
			w.lost(event.name())
			continue
		}
		if _, err := out.Write(event.line); err != nil || flush() != nil {
			return
		}
	}
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
}
