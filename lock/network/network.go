// Package network tells which network a client is in: clients that share one share its limits, at every
// door and at the webhook's port.
package network

import "net/netip"

// bits of an IPv6 address name a network: its owner has all addresses of it.
const bits = 64

// Of returns the network of an address with a port: of IPv4 the address, of IPv6 the first 64 bits. It is
// zero if that is no internet address.
func Of(address string) netip.Prefix {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	unmapped := peer.Addr().Unmap()
	length := unmapped.BitLen()
	if unmapped.Is6() {
		length = bits
	}
	// It is never more bits than the address has.
	of, _ := unmapped.Prefix(length)
	return of
}
