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
		"invalid": {func(a *attempt) { a.fail() }, maxFailures - 1},
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

// An API server that stops refuses the tokens of service accounts that it cannot look up.
func TestARefusalOfKnownCredentialsIsDoubtedForAMoment(t *testing.T) {
	network := netip.MustParsePrefix("192.0.2.1/32")
	now := clocktesting.NewFakePassiveClock(time.Now())
	l := newAuthFailureLimiter(now)
	begin := func() *attempt {
		next, ok := l.begin(network, "Bearer known")
		if !ok {
			t.Fatal("may not try")
		}
		return &next
	}
	refuse := func(title string, want bool) {
		t.Helper()
		if got := begin().fail(); got != want {
			t.Errorf("%s: certain %t", title, got)
		}
	}
	refuse("never valid", true)
	begin().succeed()
	refuse("the first refusal", false)
	refuse("another one at once", false)
	begin().succeed()
	now.SetTime(now.Now().Add(doubtFor))
	refuse("the first refusal since the token was valid again", false)
	now.SetTime(now.Now().Add(doubtFor - 1))
	refuse("within the moment", false)
	now.SetTime(now.Now().Add(1))
	refuse("after it", true)
	refuse("once it is known", true)
	begin().succeed()
	refuse("before the clock was set back", false)
	now.SetTime(now.Now().Add(-time.Hour))
	refuse("after the clock was set back", true)
}
