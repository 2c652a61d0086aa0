package server

import (
	"cmp"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
)

const (
	// unauthenticatedShare is how many requests without an authenticated caller there are for all connections: one for so
	// many. One network has two thirds of that, which by default is what one connection can have at a time: all calls of
	// a client that has just connected are such requests at first.
	unauthenticatedShare = 10
	// minUnauthenticated is the least that they have, if the limit is not less.
	minUnauthenticated = 100
	// endingFactor is how many times that many there are at most while some of them end, or have known credentials.
	endingFactor = 2
	// unauthenticatedGrace is how long a request keeps its place beside those of its own network, and of networks with as many.
	unauthenticatedGrace = 2 * time.Second
)

// UnauthenticatedRequestBytes is what a request without an authenticated caller takes in memory at most, with
// what is kept of its body.
const UnauthenticatedRequestBytes = 40<<10 + maxUnreadBytes

// MaxUnauthenticatedRequests is how many requests without an authenticated caller there are at most if there
// may be so many connections, zero meaning [DefaultMaxConnections]. It includes those that are about to end.
func MaxUnauthenticatedRequests(maxConnections int) int {
	return endingFactor * shareOfUnauthenticated(cmp.Or(maxConnections, DefaultMaxConnections))
}

func shareOfUnauthenticated(maxConnections int) int {
	return max(maxConnections/unauthenticatedShare, min(maxConnections, minUnauthenticated))
}

// requests counts those that are served or whose answers are sent. Those of authenticated callers have a permit each. The
// others never take the places of these: they have a share of their own, in total and for each network. For one more,
// the oldest of the network with most of them ends. It is safe for concurrent use.
type requests struct {
	limiter                                          *limits.Limiter
	maxUnauthenticated, maxUnauthenticatedPerNetwork int
	clock                                            clock.PassiveClock

	mu              sync.Mutex
	unauthenticated listener.Crowd[*request]
	ended           uint64
}

// request is one that counts.
type request struct {
	all     *requests
	of      *listener.Conn
	network netip.Prefix
	w       http.ResponseWriter
	isHTTP2 bool

	// The mutex of all requests guards these.

	since time.Time
	// leave takes it out of those without an authenticated caller, and release ends what keeps its connection for the caller.
	leave, release func()
	// permit is that of the authenticated caller. Nil until then.
	permit *limits.Permit
	// isEnding says that it was ended for another.
	isEnding bool

	mu sync.Mutex
	// isOver says that w must not be used any more.
	isOver bool
}

func newRequests(maxConnections, maxPerAddress int, limiter *limits.Limiter, clock clock.PassiveClock) *requests {
	share := shareOfUnauthenticated(maxConnections)
	t := &requests{limiter: limiter, maxUnauthenticated: share, maxUnauthenticatedPerNetwork: share, clock: clock}
	if maxPerAddress < maxConnections {
		t.maxUnauthenticatedPerNetwork = min(share-share/3, maxPerAddress)
	}
	return t
}

// begin counts a request, which has no authenticated caller yet. It reports false if there is no place for it. Credentials that
// are known are those of a caller that is about to take a place of its own. The victim, if there is one, must be ended for it or
// for the next.
func (t *requests) begin(q *request, isKnown func() bool) (victim *request, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.since, q.leave, q.release = t.clock.Now(), func() {}, func() {}
	isNetworkFull := t.unauthenticated.Of(q.network) >= t.maxUnauthenticatedPerNetwork
	if isNetworkFull || t.unauthenticated.Len() >= t.maxUnauthenticated {
		find := t.unauthenticated.Leaver
		if isNetworkFull {
			find = t.unauthenticated.OldestOf
		}
		if victim, ok = find(q.network); ok && !t.givesWay(victim, q) {
			victim, ok = nil, false
		}
		if !ok && !isKnown() || t.unauthenticated.Len() >= endingFactor*t.maxUnauthenticated {
			return victim, false
		}
	}
	q.leave = t.unauthenticated.Join(q.network, q)
	return victim, true
}

// givesWay reports whether the request ends for the new one.
func (t *requests) givesWay(victim, q *request) bool {
	isOfMore := victim.network != q.network && t.unauthenticated.Of(victim.network) > t.unauthenticated.Of(q.network)+1
	if !isOfMore && q.since.Sub(victim.since) < unauthenticatedGrace {
		return false
	}
	if !victim.isEnding {
		t.ended++
	}
	// It counts until it ends, as the newest one.
	victim.leave()
	victim.leave = t.unauthenticated.Join(victim.network, victim)
	return true
}

// authenticate returns the permit that counts the request from now on as one of the caller. The error is that of a limit, or
// says that the request was ended for another. Then it counts as one without an authenticated caller while it is answered.
func (q *request) authenticate(caller limits.Caller) (*limits.Permit, error) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	switch {
	case q.permit != nil:
		return q.permit, nil
	case q.isEnding:
		return nil, limits.ErrInFlight
	}
	permit, err := q.all.limiter.Admit(caller)
	if err != nil {
		return nil, err
	}
	q.leave()
	q.permit, q.release = permit, q.of.Hold(true)
	return permit, nil
}

// finish forgets the request.
func (q *request) finish() {
	q.mu.Lock()
	q.isOver = true
	q.mu.Unlock()
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.leave()
	q.release()
	if q.permit != nil {
		q.permit.Release()
	}
}

// endedForOthers returns how many requests were ended for others.
func (t *requests) endedForOthers() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// end ends the request for another one. A connection with an authenticated caller may have others, as that of a proxy does: over
// HTTP/2 only the stream is reset at first, by a deadline that has passed. That does not end one whose client takes nothing from
// the connection: if it is chosen again, the connection ends.
func (q *request) end() {
	q.all.mu.Lock()
	isFirst := !q.isEnding
	q.isEnding = true
	q.all.mu.Unlock()
	if !isFirst || !q.isHTTP2 || !q.of.IsProven() {
		_ = q.of.Close()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isOver {
		_ = http.NewResponseController(q.w).SetWriteDeadline(time.Unix(1, 0))
	}
}
