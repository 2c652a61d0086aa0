package bodies

import (
	"io"
	"sync/atomic"
)

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
	body := new(Body)
	body.Init(b, reader, size)
	return body
}

// Take implements [Room].
func (b *Budget) Take(n int64) error {
	if b.take(n) {
		return nil
	}
	return b.exhausted
}

// take reports whether there was room.
func (b *Budget) take(n int64) bool {
	if b.left.Add(-n) < 0 || b.whole != nil && !b.whole.take(n) {
		b.left.Add(n)
		return false
	}
	return true
}

// Give implements [Room].
func (b *Budget) Give(n int64) {
	for ; b != nil; b = b.whole {
		b.left.Add(n)
	}
}
