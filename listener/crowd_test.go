package listener_test

import (
	"net/netip"
	"testing"

	"forrst.dev/lock-operator/listener"
)

var (
	first  = netip.MustParsePrefix("192.0.2.1/32")
	second = netip.MustParsePrefix("192.0.2.2/32")
	third  = netip.MustParsePrefix("192.0.2.3/32")
)

func wantLeaver(t *testing.T, crowd *listener.Crowd[string], of netip.Prefix, want string) {
	t.Helper()
	if got, ok := crowd.Leaver(of); got != want || ok != (want != "") {
		t.Errorf("%q makes room for another one of %s, want %q", got, of, want)
	}
}

func TestTheNetworkWithMostMakesRoom(t *testing.T) {
	var crowd listener.Crowd[string]
	wantLeaver(t, &crowd, first, "")
	crowd.Join(second, "oldest")
	leave := crowd.Join(first, "a")
	crowd.Join(first, "b")
	crowd.Join(third, "alone")
	wantLeaver(t, &crowd, third, "a")
	leave()
	leave()
	if crowd.Len() != 3 || crowd.Of(first) != 1 {
		t.Errorf("%d members, %d of the first network", crowd.Len(), crowd.Of(first))
	}
	wantLeaver(t, &crowd, netip.MustParsePrefix("192.0.2.4/32"), "oldest")
}

func TestANetworkTakesNothingFromSmallerOnes(t *testing.T) {
	var crowd listener.Crowd[string]
	crowd.Join(first, "first")
	crowd.Join(second, "own")
	wantLeaver(t, &crowd, second, "own")
	crowd.Join(second, "own too")
	wantLeaver(t, &crowd, second, "own")
}
