package access

import (
	"context"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxReviewed is how many answers count as known. Those that were used for the longest time are forgotten.
	maxReviewed = 1 << 14
	// allowedFor and deniedFor are for how long [Access] remembers an answer, at least.
	allowedFor = 10 * time.Second
	deniedFor  = 2 * time.Second
)

// right is a right that was reviewed.
type right = authorizationv1.ResourceAttributes

// rightOf is a right of a caller.
type rightOf struct {
	caller string
	right  right
}

// reviews has each review paid for, since a caller may name any namespace, and there need not be one. Nothing is paid for a
// right that was reviewed lately, since [Access] remembers the answer, nor for one that the caller had then: each use of it is
// paid for. Calls that need the same right at once have the API server asked once. Tokens of one user that differ count as
// one, though [Access] tells them apart: they are paid for with their TokenReviews. It is safe for concurrent use.
type reviews struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// known has the last [known] about each [rightOf] a caller.
	known *lru.Cache
	// pending are closed when the review of the right has ended.
	pending map[rightOf]chan struct{}
}

// known is the answer to a review, and until when it counts.
type known struct {
	until     time.Time
	isAllowed bool
}

func newReviews(clock clock.PassiveClock) *reviews {
	return &reviews{clock: clock, known: lru.New(maxReviewed), pending: map[rightOf]chan struct{}{}}
}

// review is one question about a right.
type review struct {
	of    *reviews
	asked rightOf
	start time.Time
	// isDone is closed when the review ends. Nil if the answer is known.
	isDone chan struct{}
}

// begin returns when the right may be asked about: at once if the answer is known, or when a review that is under way has
// ended, or when the caller has paid. [review.end] must follow. The error is that of the payment or of ctx.
func (r *reviews) begin(ctx context.Context, caller *Caller, asked right) (review, error) {
	isPaid := false
	for {
		begun, pending := r.tryBegin(rightOf{caller.Holder(), asked}, isPaid)
		switch {
		case begun != nil:
			return *begun, nil
		case pending == nil:
			// Nobody waits for this one meanwhile: those who do may have room at a rate of their own.
			if err := caller.Permit.Pay(ctx); err != nil {
				return review{}, err
			}
			isPaid = true
			continue
		}
		select {
		case <-pending: // What it found is known now, or else one of those that have waited is next.
		case <-ctx.Done():
			return review{}, ctx.Err()
		}
	}
}

// tryBegin begins the question, unless its review is not paid for or under way: then pending ends when that does.
func (r *reviews) tryBegin(asked rightOf, isPaid bool) (begun *review, pending <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	found, _ := r.known.Get(asked)
	last, _ := found.(known)
	if now.Before(last.until) && last.until.Sub(now) <= allowedFor {
		return &review{}, nil
	}
	if pending := r.pending[asked]; pending != nil {
		return nil, pending
	}
	if !isPaid && !last.isAllowed {
		return nil, nil
	}
	// They may be parts of a long request line, which would stay in memory with them.
	asked.right.Namespace, asked.right.Name = strings.Clone(asked.right.Namespace), strings.Clone(asked.right.Name)
	begun = &review{of: r, asked: asked, start: now, isDone: make(chan struct{})}
	r.pending[asked] = begun.isDone
	return begun, nil
}

// end records whether the caller has the right, or that this is not known.
func (r *review) end(answer answer) {
	if r.isDone == nil {
		return
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	delete(r.of.pending, r.asked)
	close(r.isDone)
	switch answer {
	case allowed:
		r.of.known.Add(r.asked, known{r.start.Add(allowedFor), true})
	case denied:
		r.of.known.Add(r.asked, known{until: r.start.Add(deniedFor)})
	default:
		r.of.known.Remove(r.asked)
	}
}

// answer is what came of a review.
type answer int

const (
	unknown answer = iota
	allowed
	denied
)
