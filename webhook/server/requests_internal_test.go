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
	for number := range 3 * maxNamespaces {
		r.allow(tenant{networkOf(number / 100), fmt.Sprint(number)}, now)
	}
	if got := r.ofNamespaces.Len(); got > maxNamespaces+1 {
		t.Errorf("%d rates are kept", got)
	}
	now = now.Add(time.Minute)
	r.allow(tenant{networkOf(0), "another"}, now)
	if got := r.ofNamespaces.Len(); got > 1 {
		t.Errorf("%d rates are kept that nothing has used for a minute", got)
	}
}

func networkOf(number int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}), 32)
}

func TestNoNamespaceIsRememberedWithoutARequest(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := newRequests(16)
	try := func(network int) (allowed int) {
		for number := range 100 {
			if r.allow(tenant{networkOf(network), fmt.Sprint(number)}, now) {
				allowed++
			}
		}
		return allowed
	}
	if got := try(1); got != 8 || r.ofNamespaces.Len() != 8 {
		t.Errorf("%d requests are allowed, and %d rates kept", got, r.ofNamespaces.Len())
	}
	for range 8 {
		r.allow(tenant{networkOf(2), ""}, now)
	}
	if got := try(3); got != 0 || r.ofNamespaces.Len() != 8 {
		t.Errorf("%d requests are allowed beyond those of all networks, and %d rates kept", got, r.ofNamespaces.Len())
	}
}
