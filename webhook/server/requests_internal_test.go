package server

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestFewNamespacesAreRemembered(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := newRequests(1 << 20)
	// They count in all networks together, of which there may be thousands.
	var of *network
	for number := range 3 * maxNamespaces {
		if number%100 == 0 {
			of = &network{prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(number / 100)}), 32), requests: r.ofNetwork()}
		}
		r.allow(of, fmt.Sprint(number), now)
	}
	if got := r.ofNamespaces.Len(); got > maxNamespaces+1 {
		t.Errorf("%d rates are kept", got)
	}
	now = now.Add(time.Minute)
	r.allow(of, "another", now)
	if got := r.ofNamespaces.Len(); got > 1 {
		t.Errorf("%d rates are kept that nothing has used for a minute", got)
	}
}

func TestNoNamespaceIsRememberedWithoutARequest(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := newRequests(16)
	one, other := &network{requests: r.ofNetwork()}, &network{requests: r.ofNetwork()}
	try := func(of *network) (allowed int) {
		for number := range 100 {
			if r.allow(of, fmt.Sprint(number), now) {
				allowed++
			}
		}
		return allowed
	}
	if got := try(one); got != 8 || r.ofNamespaces.Len() != 8 {
		t.Errorf("%d requests are allowed, and %d rates kept", got, r.ofNamespaces.Len())
	}
	r.allow(other, "", now)
	for range 7 {
		r.allow(other, "", now)
	}
	another := &network{prefix: netip.MustParsePrefix("10.0.0.3/32"), requests: r.ofNetwork()}
	if got := try(another); got != 0 || r.ofNamespaces.Len() != 8 {
		t.Errorf("%d requests are allowed beyond those of all networks, and %d rates kept", got, r.ofNamespaces.Len())
	}
}
