package line

import "sync"

// outbox holds what is to be sent on a stream. Senders never block: a writer for another caller may be one of
// them. What it holds is bounded by the waits and calls of the stream.
type outbox[T any] struct {
	mu      sync.Mutex
	pending []T
	// isClosed is set when the stream has ended.
	isClosed bool
	// isFilled has a value if pending is not empty.
	isFilled chan struct{}
}

func newOutbox[T any]() *outbox[T] { return &outbox[T]{isFilled: make(chan struct{}, 1)} }

// put reports false if the stream has ended.
func (o *outbox[T]) put(message T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isClosed {
		return false
	}
	o.pending = append(o.pending, message)
	select {
	case o.isFilled <- struct{}{}:
	default:
	}
	return true
}

// close makes put fail.
func (o *outbox[T]) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isClosed, o.pending = true, nil
}

// drain sends until stop is closed or send fails.
func (o *outbox[T]) drain(stop <-chan struct{}, send func(T) error) error {
	for {
		select {
		case <-stop:
			return nil
		case <-o.isFilled:
		}
		o.mu.Lock()
		batch := o.pending
		o.pending = nil
		o.mu.Unlock()
		for _, message := range batch {
			if err := send(message); err != nil {
				return err
			}
		}
	}
}
