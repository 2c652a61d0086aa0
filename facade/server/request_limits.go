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
	// unauthenticatedShare is the part of the limit of all requests that those without an authenticated
	// caller have besides: one in so many. One network has two thirds of that, which by default is what one
	// connection can have at a time: all calls of a client that has just connected are such requests at first.
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

// requests counts those that are served or whose answers are sent, but for those that wait for a lock, which
// have limits of their own. Those of authenticated callers are bounded in total and for each caller. The
// others never take their places: they have a share of their own, in total and for each network. For one more,
// the oldest of the network with most of them ends. It is safe for concurrent use.
type requests struct {
	max, maxPerCaller                                int
	maxUnauthenticated, maxUnauthenticatedPerNetwork int
	clock                                            clock.PassiveClock

	mu              sync.Mutex
	authenticated   int
	callers         map[limits.Caller]int
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
	leave, release  func()
	caller          limits.Caller
	isAuthenticated bool
	// isEnding says that it was ended for another.
	isEnding bool

	mu sync.Mutex
	// isOver says that w must not be used any more.
	isOver bool
}

func newRequests(maximum, maxPerAddress int, clock clock.PassiveClock) *requests {
	share := shareOfUnauthenticated(maximum)
	t := &requests{
		max: maximum, maxPerCaller: maxPerAddress, maxUnauthenticated: share, maxUnauthenticatedPerNetwork: share,
		clock: clock, callers: map[limits.Caller]int{},
	}
	if maxPerAddress < maximum {
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

// addAuthenticated changes how many requests of a caller there are.
func (t *requests) addAuthenticated(of limits.Caller, change int) {
	t.authenticated += change
	t.callers[of] += change
	if t.callers[of] == 0 {
		delete(t.callers, of)
	}
}

// authenticate counts the request as one of the caller. The error is that of a limit, or says that the request
// was ended for another. Then it counts as one without an authenticated caller while it is answered.
func (q *request) authenticate(caller limits.Caller) error {
	t := q.all
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case q.isAuthenticated:
		return nil
	case t.callers[caller] >= t.maxPerCaller:
		return limits.ErrCallerInFlight
	case q.isEnding, t.authenticated >= t.max:
		return limits.ErrInFlight
	}
	q.leave()
	q.caller, q.isAuthenticated, q.release = caller, true, q.of.Hold(true)
	t.addAuthenticated(caller, 1)
	return nil
}

// finish forgets the request.
func (q *request) finish() {
	q.mu.Lock()
	q.isOver = true
	q.mu.Unlock()
	q.count(-1)
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.leave()
	q.release()
}

// endedForOthers returns how many requests were ended for others.
func (t *requests) endedForOthers() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// BeginWait implements [limits.Waits].
func (q *request) BeginWait() { q.count(-1) }

// EndWait implements [limits.Waits]. The answer of the call counts even beyond the limits: it may tell of a
// lock.
func (q *request) EndWait() { q.count(1) }

func (q *request) count(change int) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.isAuthenticated {
		q.all.addAuthenticated(q.caller, change)
	}
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
