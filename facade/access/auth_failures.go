package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxFailures is how many invalid credentials may come from one network at once by default: each costs
	// a request to the API server. It may present as many again in failuresPeriod.
	maxFailures    = 100
	failuresPeriod = 10 * time.Second
	// maxNetworks and maxKnownCredentials bound the memory. The entry that was not used for
	// the longest time is forgotten first.
	maxNetworks         = 4096
	maxKnownCredentials = 32768
	// doubtFor is how long a refusal of credentials that were valid before is doubted: an API server
	// that stops, or has only begun, refuses tokens of service accounts that it cannot look up.
	doubtFor = 2 * time.Second
)

// authFailureLimiter limits how often one network may present credentials that are not
// valid. Credentials that were valid before are always let through, so that other clients
// behind the same address cannot shut their owner out. Requests that present the same
// credentials at once count as one: after a restart many clients come back together, and the
// API server is asked once. Requests without credentials cost nothing. It is safe for
// concurrent use.
type authFailureLimiter struct {
	clock clock.PassiveClock
	// max is how many invalid credentials may come from one network at once.
	max float64
	// secret keeps tokens out of memory, and clients from choosing their digests.
	secret [sha256.Size]byte

	mu sync.Mutex
	// networks has an [allowance] for each network that has used some of it.
	networks *lru.Cache
	// known are the digests of credentials that were valid, with when they were first refused since;
	// zero if they were not.
	known *lru.Cache
	// pending are the attempts with credentials of which nothing is known yet.
	pending map[digest]*attempts
}

// attempts present the same credentials at once. The network of the first pays for all.
type attempts struct {
	network netip.Prefix
	left    int
	// isSpent says that the network gets nothing back.
	isSpent bool
}

// allowance is what a network has left at a time.
type allowance struct {
	left float64
	at   time.Time
}

type digest [sha256.Size]byte

func newAuthFailureLimiter(clock clock.PassiveClock, most int) *authFailureLimiter {
	l := &authFailureLimiter{clock: clock, max: float64(most), networks: lru.New(maxNetworks), known: lru.New(maxKnownCredentials), pending: map[digest]*attempts{}}
	// It never fails.
	_, _ = rand.Read(l.secret[:])
	return l
}

// attempt is one try to authenticate. One of its methods must be called with its outcome.
type attempt struct {
	*authFailureLimiter

	credentials digest
	// with is nil if the attempt does not count against a network.
	with *attempts
}

// begin reports whether the credentials may be looked at.
func (l *authFailureLimiter) begin(network netip.Prefix, credentials string) (attempt, bool) {
	if credentials == "" {
		return attempt{authFailureLimiter: l}, true
	}
	a := attempt{authFailureLimiter: l, credentials: l.digestOf(credentials)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, isKnown := l.known.Get(a.credentials); isKnown {
		return a, true
	}
	a.with = l.pending[a.credentials]
	if a.with == nil {
		if !l.spend(network, 1) {
			return a, false
		}
		a.with = &attempts{network: network}
		l.pending[a.credentials] = a.with
	}
	a.with.left++
	return a, true
}

func (l *authFailureLimiter) digestOf(credentials string) digest {
	mac := hmac.New(sha256.New, l.secret[:])
	mac.Write([]byte(credentials))
	return digest(mac.Sum(nil))
}

// isKnown reports whether the credentials were valid when they were last looked at.
func (l *authFailureLimiter) isKnown(credentials string) bool {
	digest := l.digestOf(credentials)
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.known.Get(digest)
	refused, _ := found.(time.Time)
	return ok && refused.IsZero()
}

// spend takes from the allowance of a network, or gives back. It needs the mutex.
func (l *authFailureLimiter) spend(network netip.Prefix, amount float64) bool {
	now := l.clock.Now()
	left := allowance{l.max, now}
	if known, ok := l.networks.Get(network); ok {
		left, _ = known.(allowance)
		left.left += l.max * max(0, now.Sub(left.at).Seconds()) / failuresPeriod.Seconds()
		left.at = now
	}
	if left.left = min(left.left, l.max) - amount; left.left < 0 {
		return false
	}
	l.networks.Add(network, left)
	return true
}

// succeed records that the credentials are valid.
func (a *attempt) succeed() {
	if a.with == nil && a.credentials == (digest{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Add(a.credentials, time.Time{})
	if a.with != nil {
		a.end()
	}
}

// fail records that they are not, and reports whether that is certain.
func (a *attempt) fail() (isCertain bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.with != nil {
		a.with.isSpent = true
		a.end()
		return true
	}
	found, isKnown := a.known.Get(a.credentials)
	if !isKnown {
		return true
	}
	now := a.clock.Now()
	refused, _ := found.(time.Time)
	if refused.IsZero() {
		a.known.Add(a.credentials, now)
		return false
	}
	if age := now.Sub(refused); age >= 0 && age < doubtFor {
		return false
	}
	a.known.Remove(a.credentials)
	return true
}

// refund ends an attempt that did not find out whether they are.
func (a *attempt) refund() {
	if a.with == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end()
}

// leave is refund for a client that has gone before that. It gets nothing back, or it could have any
// number of credentials reviewed.
func (a *attempt) leave() {
	if a.with == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.with.isSpent = true
	a.end()
}

// end needs the mutex. Credentials that were paid for cost again when they are presented again.
func (a *attempt) end() {
	a.with.left--
	if (a.with.left == 0 || a.with.isSpent) && a.pending[a.credentials] == a.with {
		delete(a.pending, a.credentials)
	}
	if a.with.left == 0 && !a.with.isSpent {
		a.spend(a.with.network, -1)
	}
}
