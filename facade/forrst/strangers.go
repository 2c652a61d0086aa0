package forrst

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
	// maxStrangers is how many credentials that are not valid may come from one network at
	// once, and strangersPerSecond how many more as time goes on: each costs a request to
	// the API server.
	maxStrangers       = 100
	strangersPerSecond = 10
	// maxStrangeNetworks and maxFriends bound what is remembered. What was not seen for the
	// longest time is forgotten first.
	maxStrangeNetworks = 4096
	maxFriends         = 32768
)

// strangers limits how often one network may present credentials that are not valid.
// Whoever has presented valid ones is let through all the same, so that others behind the
// same address cannot shut them out. No credentials at all cost nothing. It is safe for concurrent use.
type strangers struct {
	clock clock.PassiveClock
	// secret keeps the tokens out of memory, and others from choosing their digests.
	secret [sha256.Size]byte

	mu sync.Mutex
	// networks has an [allowance] for each network that has used some of it.
	networks *lru.Cache
	// friends are the digests of credentials that were valid.
	friends *lru.Cache
}

// allowance is what a network has left at a time.
type allowance struct {
	left float64
	at   time.Time
}

type digest [sha256.Size]byte

func newStrangers(clock clock.PassiveClock) *strangers {
	s := &strangers{clock: clock, networks: lru.New(maxStrangeNetworks), friends: lru.New(maxFriends)}
	// It never fails.
	_, _ = rand.Read(s.secret[:])
	return s
}

// attempt is one try to authenticate.
type attempt struct {
	*strangers

	network     netip.Prefix
	credentials digest
	isFriend    bool
}

// begin reports whether the credentials may be looked at.
func (s *strangers) begin(network netip.Prefix, credentials string) (attempt, bool) {
	if credentials == "" {
		return attempt{isFriend: true, strangers: s}, true
	}
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(credentials))
	a := attempt{strangers: s, network: network, credentials: digest(mac.Sum(nil))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, a.isFriend = s.friends.Get(a.credentials); a.isFriend {
		return a, true
	}
	return a, s.spend(network, 1)
}

// spend takes from the allowance of a network, or gives back. It needs the mutex.
func (s *strangers) spend(network netip.Prefix, amount float64) bool {
	now := s.clock.Now()
	left := allowance{maxStrangers, now}
	if known, ok := s.networks.Get(network); ok {
		left, _ = known.(allowance)
		left.left += strangersPerSecond * max(0, now.Sub(left.at).Seconds())
		left.at = now
	}
	if left.left = min(left.left, maxStrangers) - amount; left.left < 0 {
		return false
	}
	s.networks.Add(network, left)
	return true
}

// succeed says that the credentials are valid.
func (a *attempt) succeed() {
	if a.isFriend {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.friends.Add(a.credentials, struct{}{})
	a.spend(a.network, -1)
}

// fail says that they are not.
func (a *attempt) fail() {
	if !a.isFriend {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.friends.Remove(a.credentials)
}

// forgive says that it is not known whether they are.
func (a *attempt) forgive() {
	if a.isFriend {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spend(a.network, -1)
}
