package access

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// many are more clients than a network may have invalid credentials.
const many = 3 * maxFailures

// left returns how many more credentials the network may present. It uses them up.
func left(l *authFailureLimiter, network netip.Prefix) (count int) {
	for ; count < many; count++ {
		if _, ok := l.begin(network, fmt.Sprint("Bearer other ", count)); !ok {
			break
		}
	}
	return count
}

func TestClientsWithTheSameCredentialsCountAsOne(t *testing.T) {
	for title, test := range map[string]struct {
		finish func(*attempt)
		left   int
	}{
		"valid":   {(*attempt).succeed, maxFailures},
		"invalid": {(*attempt).fail, maxFailures - 1},
		"unknown": {(*attempt).refund, maxFailures},
		"no end":  {func(*attempt) {}, maxFailures - 1},
	} {
		t.Run(title, func(t *testing.T) {
			network := netip.MustParsePrefix("192.0.2.1/32")
			l := newAuthFailureLimiter(clocktesting.NewFakePassiveClock(time.Now()))
			var begun []attempt
			for range many {
				next, ok := l.begin(network, "Bearer the same")
				if !ok {
					t.Fatalf("%d may try", len(begun))
				}
				begun = append(begun, next)
			}
			for index := range begun {
				test.finish(&begun[index])
			}
			if got := left(l, network); got != test.left {
				t.Errorf("%d more may try, want %d", got, test.left)
			}
		})
	}
}

// Credentials that are known to be invalid cost again, also while other clients wait for that answer.
func TestInvalidCredentialsArePaidForEachTime(t *testing.T) {
	network := netip.MustParsePrefix("192.0.2.1/32")
	l := newAuthFailureLimiter(clocktesting.NewFakePassiveClock(time.Now()))
	for range 10 {
		first, _ := l.begin(network, "Bearer invalid")
		second, _ := l.begin(network, "Bearer invalid")
		first.fail()
		third, _ := l.begin(network, "Bearer invalid")
		second.fail()
		third.fail()
	}
	if got := left(l, network); got != maxFailures-20 {
		t.Errorf("%d more may try, want %d", got, maxFailures-20)
	}
	if len(l.pending) != maxFailures-20 {
		t.Errorf("%d are pending", len(l.pending))
	}
}
