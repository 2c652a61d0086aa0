package forrst

import (
	"errors"
	"io"
	"sync/atomic"
)

// errBodies means that the bodies of other requests leave no room for one more.
var errBodies = errors.New("the bodies of requests take up all memory that is set aside for them")

// bodyBudget bounds how many bytes of requests are kept at a time. It is safe for
// concurrent use.
type bodyBudget struct{ left atomic.Int64 }

func newBodyBudget(limit int) *bodyBudget {
	b := &bodyBudget{}
	b.left.Store(int64(limit))
	return b
}

func (b *bodyBudget) take(count int64) bool {
	if b.left.Add(-count) >= 0 {
		return true
	}
	b.left.Add(count)
	return false
}

// countedBody reads a body within a budget. What was only announced counts nothing: it
// may never come.
type countedBody struct {
	io.LimitedReader

	budget *bodyBudget
	taken  int64
}

// Read implements [io.Reader]. The error is [errBodies] if there is no room.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if !b.budget.take(int64(n)) {
		return 0, errBodies
	}
	b.taken += int64(n)
	return n, err
}

// forget gives the room back. To do so again changes nothing.
func (b *countedBody) forget() {
	b.budget.left.Add(b.taken)
	b.taken = 0
}
