package access

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"forrst.dev/lock-operator/facade/limits"
)

const (
	// maxReviews is how many rights one caller may have reviewed at once for its calls, and as many for its streams,
	// and reviewsPerSecond how many more as time goes on: each costs a request to the API server. A caller that uses
	// a right all the time has it reviewed every ten seconds.
	maxReviews       = 250
	reviewsPerSecond = 25
	// maxReviewed is how many answers count as known. Those that were used for the longest time are forgotten.
	maxReviewed = 1 << 14
	// maxReviewers bounds of how many callers something is known. Who has used no right for the longest time is forgotten.
	maxReviewers = 4096
	// allowedFor and deniedFor are for how long [Access] remembers an answer, at least.
	allowedFor = 10 * time.Second
	deniedFor  = 2 * time.Second
)

// errReviews refuses a caller that has too many rights reviewed.
var errReviews = &limits.Error{IsCaller: true, Limit: "reviews", Reason: "The caller asks about too many rights, such as rights in many namespaces"}

// use is what reviews are for. Each has an allowance of its own.
type use int

const (
	forCalls use = iota
	// forStreams are the reviews of streams that go on. There may be so many that they would take all that calls need.
	forStreams
	uses
)

// right is a right that was reviewed.
type right = authorizationv1.ResourceAttributes

// reviewLimiter limits how many rights a caller can have reviewed: a caller may name any namespace,
// and there need not be one. A right that was reviewed lately costs nothing, since [Access]
// remembers the answer. Calls that need the same right at once count as one, and the API server is
// asked once. Tokens of one user that differ count as one, though [Access] tells them apart: they are
// paid for with their TokenReviews. It is safe for concurrent use.
type reviewLimiter struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// callers has a [reviewsOfCaller] for each caller, and known, for each [rightOf] a caller, until when the answer counts as known.
	callers, known *lru.Cache
}

// rightOf is a right of a caller.
type rightOf struct {
	caller string
	right  right
}

// reviewsOfCaller needs the mutex of its limiter.
type reviewsOfCaller struct {
	allowances [uses]*rate.Limiter
	// pending are closed when the review of the right has ended.
	pending map[right]chan struct{}
}

func newReviewLimiter(clock clock.PassiveClock) *reviewLimiter {
	return &reviewLimiter{clock: clock, callers: lru.New(maxReviewers), known: lru.New(maxReviewed)}
}

// of returns the reviews of a caller; it needs the mutex.
func (l *reviewLimiter) of(caller string) *reviewsOfCaller {
	found, _ := l.callers.Get(caller)
	if known, ok := found.(*reviewsOfCaller); ok {
		return known
	}
	added := &reviewsOfCaller{
		allowances: [uses]*rate.Limiter{forCalls: newAllowance(), forStreams: newAllowance()},
		pending:    map[right]chan struct{}{},
	}
	l.callers.Add(caller, added)
	return added
}

func newAllowance() *rate.Limiter { return rate.NewLimiter(reviewsPerSecond, maxReviews) }

// review is one question about a right.
type review struct {
	limiter *reviewLimiter
	of      *reviewsOfCaller
	asked   rightOf
	start   time.Time
	// isDone is closed when the review ends. Nil if the answer is known.
	isDone chan struct{}
}

// begin returns when the right may be asked about: at once if the answer is known, or when a review
// that is under way has ended. [review.end] must follow. The error is [errReviews] or that of ctx.
func (l *reviewLimiter) begin(ctx context.Context, caller string, use use, asked right) (review, error) {
	for {
		begun, pending, err := l.tryBegin(caller, use, asked)
		if pending == nil {
			return begun, err
		}
		select {
		case <-pending: // What it found is known now, or else one of those that have waited is next.
		case <-ctx.Done():
			return review{}, ctx.Err()
		}
	}
}

// tryBegin returns what ends when the review of the right that is under way does; nil if there is none.
func (l *reviewLimiter) tryBegin(caller string, use use, asked right) (begun review, pending <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	of := l.of(caller)
	known, _ := l.known.Get(rightOf{caller, asked})
	if until, isKnown := known.(time.Time); isKnown && now.Before(until) && until.Sub(now) <= allowedFor {
		return review{}, nil, nil
	}
	if pending := of.pending[asked]; pending != nil {
		return review{}, pending, nil
	}
	if !of.allowances[use].AllowN(now, 1) {
		return review{}, nil, errReviews
	}
	// They may be parts of a long request line, which would stay in memory with them.
	asked.Namespace, asked.Name = strings.Clone(asked.Namespace), strings.Clone(asked.Name)
	begun = review{limiter: l, of: of, asked: rightOf{caller, asked}, start: now, isDone: make(chan struct{})}
	of.pending[asked] = begun.isDone
	return begun, nil, nil
}

// end records whether the caller has the right, or that this is not known.
func (r *review) end(answer answer) {
	if r.isDone == nil {
		return
	}
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	delete(r.of.pending, r.asked.right)
	close(r.isDone)
	switch answer {
	case allowed:
		r.limiter.known.Add(r.asked, r.start.Add(allowedFor))
	case denied:
		r.limiter.known.Add(r.asked, r.start.Add(deniedFor))
	default:
		r.limiter.known.Remove(r.asked)
	}
}

// answer is what came of a review.
type answer int

const (
	unknown answer = iota
	allowed
	denied
)
