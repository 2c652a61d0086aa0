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
	// maxFailures is how many invalid credentials may come from one network at once, and
	// failuresPerSecond how many more as time goes on: each costs a request to the API
	// server.
	maxFailures       = 100
	failuresPerSecond = 10
	// maxNetworks and maxKnownCredentials bound the memory. The entry that was not used for
	// the longest time is forgotten first.
	maxNetworks         = 4096
	maxKnownCredentials = 32768
)

// authFailureLimiter limits how often one network may present credentials that are not
// valid. Credentials that were valid before are always let through, so that other clients
// behind the same address cannot shut their owner out. Requests without credentials cost
// nothing. It is safe for concurrent use.
type authFailureLimiter struct {
	clock clock.PassiveClock
	// secret keeps tokens out of memory, and clients from choosing their digests.
	secret [sha256.Size]byte

	mu sync.Mutex
	// networks has an [allowance] for each network that has used some of it.
	networks *lru.Cache
	// known are the digests of credentials that were valid.
	known *lru.Cache
}

// allowance is what a network has left at a time.
type allowance struct {
	left float64
	at   time.Time
}

type digest [sha256.Size]byte

func newAuthFailureLimiter(clock clock.PassiveClock) *authFailureLimiter {
	l := &authFailureLimiter{clock: clock, networks: lru.New(maxNetworks), known: lru.New(maxKnownCredentials)}
	// It never fails.
	_, _ = rand.Read(l.secret[:])
	return l
}

// attempt is one try to authenticate. One of its methods must be called with its outcome.
type attempt struct {
	*authFailureLimiter

	network     netip.Prefix
	credentials digest
	// isFree says that the attempt does not count against the network.
	isFree bool
}

// begin reports whether the credentials may be looked at.
func (l *authFailureLimiter) begin(network netip.Prefix, credentials string) (attempt, bool) {
	if credentials == "" {
		return attempt{authFailureLimiter: l, isFree: true}, true
	}
	mac := hmac.New(sha256.New, l.secret[:])
	mac.Write([]byte(credentials))
	a := attempt{authFailureLimiter: l, network: network, credentials: digest(mac.Sum(nil))}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, a.isFree = l.known.Get(a.credentials); a.isFree {
		return a, true
	}
	return a, l.spend(network, 1)
}

// spend takes from the allowance of a network, or gives back. It needs the mutex.
func (l *authFailureLimiter) spend(network netip.Prefix, amount float64) bool {
	now := l.clock.Now()
	left := allowance{maxFailures, now}
	if known, ok := l.networks.Get(network); ok {
		left, _ = known.(allowance)
		left.left += failuresPerSecond * max(0, now.Sub(left.at).Seconds())
		left.at = now
	}
	if left.left = min(left.left, maxFailures) - amount; left.left < 0 {
		return false
	}
	l.networks.Add(network, left)
	return true
}

// succeed records that the credentials are valid.
func (a *attempt) succeed() {
	if a.isFree {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Add(a.credentials, struct{}{})
	a.spend(a.network, -1)
}

// fail records that they are not.
func (a *attempt) fail() {
	if !a.isFree {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Remove(a.credentials)
}

// refund undoes an attempt that did not find out whether they are.
func (a *attempt) refund() {
	if a.isFree {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spend(a.network, -1)
}
