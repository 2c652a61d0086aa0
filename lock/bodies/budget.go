package bodies

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
)

const (
	// maxDrainedBytes of a body that is refused are read and forgotten: a client that is still
	// sending when the connection closes never sees the answer.
	maxDrainedBytes = 8 << 20
	// maxExpectedBytes are set aside for a body that is announced. More has to come first: an
	// announcement costs the client nothing.
	maxExpectedBytes = 64 << 10
)

// ErrTooLarge refuses a body for its size.
var ErrTooLarge = errors.New("the body is too large")

// Budget is the memory that bodies may take at a time. It is safe for concurrent use.
type Budget struct {
	left      atomic.Int64
	exhausted error
	// whole is the budget of which this is a part. Nil if this is none.
	whole *Budget
}

// NewBudget returns a budget of so many bytes. Exhausted is the error for a body that finds
// no room.
func NewBudget(size int64, exhausted error) *Budget {
	b := &Budget{exhausted: exhausted}
	b.left.Store(size)
	return b
}

// Part returns a budget of so many bytes whose bodies count against b as well.
func (b *Budget) Part(size int64) *Budget {
	part := NewBudget(size, b.exhausted)
	part.whole = b
	return part
}

// Body returns a reader of a body of at most size bytes. [Body.Forget] must follow.
func (b *Budget) Body(reader io.Reader, size int64) *Body {
	// With one byte more, a body that is too large is told from one that fits.
	return &Body{LimitedReader: io.LimitedReader{R: reader, N: size + 1}, budget: b, size: size}
}

// take reports whether there was room.
func (b *Budget) take(n int64) bool {
	if b.left.Add(-n) < 0 || b.whole != nil && !b.whole.take(n) {
		b.left.Add(n)
		return false
	}
	return true
}

func (b *Budget) give(n int64) {
	for ; b != nil; b = b.whole {
		b.left.Add(n)
	}
}

// Body reads the body of a request within the budget of all bodies. Only bytes that have
// arrived count: what a client announces may never come.
type Body struct {
	io.LimitedReader

	budget *Budget
	size   int64
	taken  int64
}

// ReadAll returns the whole body, of which the client has announced so many bytes; -1 means that
// this is unknown. The error is that of the budget, [ErrTooLarge], or that of the connection. After
// the first two nothing is kept, and what the client still sends is read.
func (b *Body) ReadAll(announced int64) ([]byte, error) {
	var body bytes.Buffer
	var err error
	if announced > b.size {
		err = ErrTooLarge
	} else {
		body.Grow(int(min(max(announced, 0), maxExpectedBytes)) + bytes.MinRead)
		_, err = body.ReadFrom(b)
	}
	switch {
	case err == nil && int64(body.Len()) <= b.size:
		return body.Bytes(), nil
	case err == nil:
		err = ErrTooLarge
	case !errors.Is(err, b.budget.exhausted) && !errors.Is(err, ErrTooLarge):
		return nil, err
	}
	b.Forget()
	// An error here only means that the client stopped sending.
	_, _ = io.CopyN(io.Discard, b.R, maxDrainedBytes)
	return nil, err
}

// Read implements [io.Reader]. The error is that of the budget if the bodies of other requests
// leave no room.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if full := b.Take(int64(n)); full != nil {
		return 0, full
	}
	return n, err
}

// Take sets aside room for what the work on the body needs besides its bytes. The error is that of
// the budget.
func (b *Body) Take(n int64) error {
	if !b.budget.take(n) {
		return b.budget.exhausted
	}
	b.taken += n
	return nil
}

// Forget gives the room back. Calling it again changes nothing.
func (b *Body) Forget() {
	b.budget.give(b.taken)
	b.taken = 0
}
