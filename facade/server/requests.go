package server

import (
	"cmp"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/limits"
)

const (
	// unauthenticatedShare is the part of the limit of all requests that those without an authenticated
	// caller have besides: one in so many. One address has two thirds of that, which by default is what one
	// connection can have at a time: all calls of a client that has just connected are such requests at first.
	unauthenticatedShare = 10
	// minUnauthenticated is the least that they have, if the limit is not less.
	minUnauthenticated = 100
	// crowdedShare is the part of that of which one address keeps the places while its callers are being
	// authenticated: one in so many. More of its requests give way to those of other addresses: any number
	// of requests with one invalid token costs one review, and takes as long.
	crowdedShare = 4
	// endingFactor is how many times that many there are at most while some of them end.
	endingFactor = 2
	// authenticationGrace is how long a request keeps its place while its caller is being authenticated.
	authenticationGrace = unauthenticatedNearLimit
	// resetGrace is how long a request that was reset may take to end. Then its connection ends.
	resetGrace = unauthenticatedNearLimit
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
// others never take their places: they have a share of their own, in total and for each address, in which
// the oldest ends for a new one. It is safe for concurrent use.
type requests struct {
	max, maxPerCaller                                int
	maxUnauthenticated, maxUnauthenticatedPerAddress int
	// maxPendingPerAddress is how many of an address keep their places while they are authenticated.
	maxPendingPerAddress int
	clock                clock.PassiveClock

	mu              sync.Mutex
	authenticated   int
	callers         map[limits.Caller]int
	unauthenticated unauthenticated
	addresses       map[netip.Prefix]*unauthenticated
	ended           uint64
}

// unauthenticated are requests without an authenticated caller, of all addresses or of one. They are in the
// order in which they began, or their caller was refused.
type unauthenticated struct {
	count int
	// in has them by stage, but for those whose connection is being closed. Among those of all addresses,
	// pending ones that do not keep their places are with the served ones.
	in [stages]fifo[request]
}

// stage says what a request without an authenticated caller waits for.
type stage int

const (
	// served requests wait until their client takes the answer.
	served stage = iota
	// pending are those whose caller is being authenticated.
	pending
	// reset are those that were reset, in the order in which that was done.
	reset
	stages
)

// request is one that counts.
type request struct {
	of      *connection
	w       http.ResponseWriter
	isHTTP2 bool
	// since is when it began, or was reset.
	since time.Time
	// caller is that who was authenticated. The mutex of all requests guards the fields up to inAddress.
	caller          limits.Caller
	isAuthenticated bool
	// isEnding says that it was ended for another.
	isEnding         bool
	inAll, inAddress place[request]

	mu sync.Mutex
	// isOver says that w must not be used any more.
	isOver bool
}

func newRequests(maximum, maxPerAddress int, clock clock.PassiveClock) *requests {
	share := shareOfUnauthenticated(maximum)
	ofAddress, pendingOfAddress := share, share
	if maxPerAddress < maximum {
		ofAddress, pendingOfAddress = min(share-share/3, maxPerAddress), max(1, share/crowdedShare)
	}
	return &requests{
		max: maximum, maxPerCaller: maxPerAddress,
		maxUnauthenticated: share, maxUnauthenticatedPerAddress: ofAddress,
		maxPendingPerAddress: pendingOfAddress,
		clock:                clock, callers: map[limits.Caller]int{}, addresses: map[netip.Prefix]*unauthenticated{},
	}
}

// begin counts a request, which has no authenticated caller yet. It reports false if there is no place for
// it. If makeRoom is not nil, it ends another request, for this one or for the next.
func (t *requests) begin(q *request) (makeRoom func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.since = t.clock.Now()
	var victim *request
	switch address := t.addresses[q.of.network]; {
	case address != nil && address.count >= t.maxUnauthenticatedPerAddress:
		victim = address.oldest(q.since)
	case t.unauthenticated.count >= t.maxUnauthenticated:
		victim = t.unauthenticated.oldest(q.since)
	default:
		t.add(q)
		return nil, true
	}
	if victim == nil {
		return nil, false
	}
	// Those that were asked to end may take a moment. They count meanwhile.
	ok = t.unauthenticated.count < endingFactor*t.maxUnauthenticated
	if ok {
		t.add(q)
	}
	isPending := victim.inAddress.in == &t.addresses[victim.of.network].in[pending]
	victim.unlist()
	isFirst := !victim.isEnding
	if isFirst {
		victim.isEnding = true
		t.ended++
	}
	// A connection that has an authenticated caller may have more of them, as that of a proxy does. So may
	// one with which a client has just come back.
	isOfOthers := victim.of.isAuthenticated.Load() || isPending && q.since.Sub(victim.since) < authenticationGrace
	if isFirst && victim.isHTTP2 && isOfOthers {
		victim.since = q.since
		t.list(victim, reset)
		return victim.reset, ok
	}
	return victim.closeConnection, ok
}

// beginKnown is begin for a request for which that found no place, with credentials that were valid a moment
// ago: it is about to take a place of its caller.
func (t *requests) beginKnown(q *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unauthenticated.count >= endingFactor*t.maxUnauthenticated {
		return false
	}
	t.add(q)
	return true
}

// oldest returns the request that gives way to others, or nil.
func (u *unauthenticated) oldest(now time.Time) *request {
	if reset := u.in[reset].oldest(); reset != nil && now.Sub(reset.since) >= resetGrace {
		return reset
	}
	if served := u.in[served].oldest(); served != nil {
		return served
	}
	if pending := u.in[pending].oldest(); pending != nil && now.Sub(pending.since) >= authenticationGrace {
		return pending
	}
	return nil
}

// add needs the mutex, as do the other methods that change a request.
func (t *requests) add(q *request) {
	address := t.addresses[q.of.network]
	if address == nil {
		address = &unauthenticated{}
		t.addresses[q.of.network] = address
	}
	address.count++
	t.unauthenticated.count++
	t.list(q, served)
}

func (t *requests) list(q *request, in stage) {
	t.unauthenticated.in[in].pushBack(&q.inAll, q)
	t.addresses[q.of.network].in[in].pushBack(&q.inAddress, q)
}

func (q *request) unlist() {
	q.inAll.remove()
	q.inAddress.remove()
}

// forget takes a request out of those without an authenticated caller.
func (t *requests) forget(q *request) {
	q.unlist()
	t.unauthenticated.count--
	address := t.addresses[q.of.network]
	address.count--
	if address.count == 0 {
		delete(t.addresses, q.of.network)
	}
}

// addAuthenticated changes how many requests of a caller there are.
func (t *requests) addAuthenticated(of limits.Caller, change int) {
	t.authenticated += change
	t.callers[of] += change
	if t.callers[of] == 0 {
		delete(t.callers, of)
	}
}

// setPending records whether the caller of a request is being authenticated.
func (t *requests) setPending(q *request, isPending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.isEnding {
		return
	}
	q.unlist()
	address := t.addresses[q.of.network]
	switch {
	case !isPending:
		t.list(q, served)
	case address.in[pending].count < t.maxPendingPerAddress:
		t.list(q, pending)
	default:
		t.unauthenticated.in[served].pushBack(&q.inAll, q)
		address.in[pending].pushBack(&q.inAddress, q)
	}
}

// authenticate counts a request as one of the caller. The error is that of a limit, or says that the request
// was ended for another. Then it counts as one without an authenticated caller while it is answered.
func (t *requests) authenticate(q *request, caller limits.Caller) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case q.isAuthenticated:
		return nil
	case t.callers[caller] >= t.maxPerCaller:
		return limits.ErrCallerRunning
	case q.isEnding, t.authenticated >= t.max:
		return limits.ErrRunning
	}
	t.forget(q)
	q.caller, q.isAuthenticated = caller, true
	t.addAuthenticated(caller, 1)
	return nil
}

// finish forgets a request.
func (t *requests) finish(q *request) {
	q.mu.Lock()
	q.isOver = true
	q.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.isAuthenticated {
		t.addAuthenticated(q.caller, -1)
		return
	}
	t.forget(q)
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
	t := q.of.all.requests
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.isAuthenticated {
		t.addAuthenticated(q.caller, change)
	}
}

// reset ends a request over HTTP/2, but not one that its client keeps from being sent anything.
func (q *request) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isOver {
		// A deadline that has passed resets the stream at once.
		_ = http.NewResponseController(q.w).SetWriteDeadline(time.Unix(1, 0))
	}
}

// closeConnection ends a request for certain, with all others of its connection.
func (q *request) closeConnection() { _ = q.of.Close() }
