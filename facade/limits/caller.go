package limits

import (
	"net/http"
	"net/netip"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// networkBits of an IPv6 address name a network: its owner has all addresses of it.
const networkBits = 64

// Caller is whose limits a call counts against: an authenticated user or a network. All
// requests without an internet address are one caller.
type Caller struct {
	user    string
	network netip.Prefix
	// namespace is that of a service account. Whatever namespace its calls are about, they count
	// against this one: its owner can make as many accounts as it likes, and callers cannot use up
	// the share of a namespace that is not theirs. Empty if the caller is no service account.
	namespace string
}

// CallerOf returns the caller of a request with the name of its user, which is
// [user.Anonymous] where callers are not authenticated.
func CallerOf(r *http.Request, name string) Caller {
	if name != user.Anonymous {
		return Caller{user: name, namespace: namespaceOf(name)}
	}
	return Caller{network: NetworkOf(r)}
}

// namespaceOf returns the namespace of a service account, or "" for other users. The API server
// has authenticated the name.
func namespaceOf(name string) string {
	account, ok := strings.CutPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
	if !ok {
		return ""
	}
	namespace, _, _ := strings.Cut(account, serviceaccount.ServiceAccountUsernameSeparator)
	return namespace
}

// NetworkOf returns the network that a request comes from. It is zero if the request has
// no internet address.
func NetworkOf(r *http.Request) netip.Prefix { return NetworkOfAddress(r.RemoteAddr) }

// NetworkOfAddress is [NetworkOf] for an address with a port.
func NetworkOfAddress(address string) netip.Prefix {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	unmapped := peer.Addr().Unmap()
	bits := unmapped.BitLen()
	if unmapped.Is6() {
		bits = networkBits
	}
	// It is never more bits than the address has.
	network, _ := unmapped.Prefix(bits)
	return network
}
