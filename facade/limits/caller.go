package limits

import (
	"net/http"
	"net/netip"

	"k8s.io/apiserver/pkg/authentication/user"
)

// networkBits of an IPv6 address name a network: its owner has all addresses of it.
const networkBits = 64

// Caller is whose limits a call counts against: an authenticated user or a network. All
// requests without an internet address are one caller.
type Caller struct {
	user    string
	network netip.Prefix
}

// CallerOf returns the caller of a request with the name of its user, which is
// [user.Anonymous] where callers are not authenticated.
func CallerOf(r *http.Request, name string) Caller {
	if name != user.Anonymous {
		return Caller{user: name}
	}
	return Caller{network: NetworkOf(r)}
}

// NetworkOf returns the network that a request comes from. It is zero if the request has
// no internet address.
func NetworkOf(r *http.Request) netip.Prefix {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address := peer.Addr().Unmap()
	bits := address.BitLen()
	if address.Is6() {
		bits = networkBits
	}
	// It is never more bits than the address has.
	network, _ := address.Prefix(bits)
	return network
}
