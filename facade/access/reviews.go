package access

import (
	"context"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"forrst.dev/lock-operator/facade/limits"
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

// payment is how a caller pays for a review: it may name any namespace, and there need not be one.
type payment func(context.Context, *limits.Permit) error

func ofCall(ctx context.Context, permit *limits.Permit) error { return permit.Pay(ctx) }

func ofStream(ctx context.Context, permit *limits.Permit) error {
	return permit.Spend(ctx, limits.Upkeep)
}

// reviews has each review paid for, but for those of a right that was reviewed lately, since [Access] remembers the
// answer. Calls that need the same right at once have the API server asked once. Tokens of one user that differ count as
// one, though [Access] tells them apart: they are paid for with their TokenReviews. It is safe for concurrent use.
type reviews struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// known has until when the answer about a [rightOf] a caller counts as known.
	known *lru.Cache
	// pending are closed when the review of the right has ended.
	pending map[rightOf]chan struct{}
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
func (r *reviews) begin(ctx context.Context, caller *Caller, pay payment, asked right) (review, error) {
	isPaid := false
	for {
		begun, pending := r.tryBegin(rightOf{caller.Holder(), asked}, isPaid)
		switch {
		case begun != nil:
			return *begun, nil
		case pending == nil:
			// Nobody waits for this one meanwhile: those who do may have room at a rate of their own.
			if err := pay(ctx, caller.Permit); err != nil {
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
	known, _ := r.known.Get(asked)
	if until, isKnown := known.(time.Time); isKnown && now.Before(until) && until.Sub(now) <= allowedFor {
		return &review{}, nil
	}
	if pending := r.pending[asked]; pending != nil {
		return nil, pending
	}
	if !isPaid {
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
		r.of.known.Add(r.asked, r.start.Add(allowedFor))
	case denied:
		r.of.known.Add(r.asked, r.start.Add(deniedFor))
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
