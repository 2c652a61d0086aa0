package network_test

import (
	"testing"

	"forrst.dev/lock-operator/lock/network"
)

func TestOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:443":                "192.0.2.7/32",
		"[::ffff:192.0.2.7]:443":       "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:443":   "2001:db8:1:2::/64",
		"[fe80::1%eth0]:443":           "fe80::/64",
		"192.0.2.7":                    "invalid Prefix",
		"@":                            "invalid Prefix",
		"":                             "invalid Prefix",
		"[2001:db8:1:2:ffff:ffff::]:1": "2001:db8:1:2::/64",
	} {
		if got := network.Of(address).String(); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
