package forrst

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
)

// networkBits of an IPv6 address name a network: whoever has one address there has all.
const networkBits = 64

// runAdmitted runs the call unless too many run already.
func (c *call) runAdmitted(ctx context.Context, r *http.Request) (json.RawMessage, error) {
	var err error
	if c.admission, err = c.limiter.admit(callerOf(r, c.caller.holder())); err != nil {
		return nil, err
	}
	defer func() {
		// What goes on elsewhere may have taken the place over.
		if c.admission != (admission{}) {
			c.admission.leave()
		}
	}()
	return c.run(ctx)
}

// callerOf returns whose limits a call counts against. What has no address of the internet
// is one caller.
func callerOf(r *http.Request, holder string) caller {
	if holder != Anonymous {
		return caller{name: holder}
	}
	return caller{network: networkOf(r)}
}

// networkOf returns the network that a request comes from, which is zero for what has no
// address of the internet.
func networkOf(r *http.Request) netip.Prefix {
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
