package server

import (
	"net/http"
	"net/netip"
	"strings"
)

// loopbackHostsOnly refuses requests for a host that is not this machine by its name. A page can give
// its own name the address of this machine, and then counts as one of the same origin in a browser.
func loopbackHostsOnly(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackHost(r.Host) {
			http.Error(w, "Callers are not authenticated, so the host must be localhost or a loopback address", http.StatusMisdirectedRequest)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// isLoopbackHost reports whether the host, with or without a port, is this machine. Names below localhost
// may be looked up in DNS (RFC 6761), and so may be any machine.
func isLoopbackHost(host string) bool {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().IsLoopback()
	}
	if address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return address.IsLoopback()
	}
	name, _, _ := strings.Cut(host, ":")
	return strings.TrimSuffix(strings.ToLower(name), ".") == "localhost"
}
