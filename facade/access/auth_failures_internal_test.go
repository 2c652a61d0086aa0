package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/network"
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
		"valid":     {(*attempt).succeed, maxFailures},
		"invalid":   {func(a *attempt) { a.fail() }, maxFailures - 1},
		"unknown":   {(*attempt).refund, maxFailures},
		"abandoned": {(*attempt).leave, maxFailures - 1},
	} {
		t.Run(title, func(t *testing.T) {
			network := netip.MustParsePrefix("192.0.2.1/32")
			l := newAuthFailureLimiter(clocktesting.NewFakePassiveClock(time.Now()), maxFailures)
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
			if len(l.pending) != 0 {
				t.Errorf("%d are pending", len(l.pending))
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
	l := newAuthFailureLimiter(clocktesting.NewFakePassiveClock(time.Now()), maxFailures)
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
	l := newAuthFailureLimiter(now, maxFailures)
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

// fakeAccess answers each request to authenticate with an error.
type fakeAccess struct {
	Access

	err error
}

func (f fakeAccess) Authenticate(*http.Request) (user.Info, error) { return nil, f.err }

// Whatever an attempt ends with, nothing is kept of it, and only what costs a review is paid for.
func TestAttemptsThatFail(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for title, test := range map[string]struct {
		ctx  context.Context // an argument
		err  error
		left int
	}{
		"refused":             {t.Context(), lock.ErrUnauthenticated, maxFailures - 1},
		"no valid request":    {t.Context(), lock.ErrInvalid, maxFailures},
		"not reviewed":        {t.Context(), errors.New("no answer"), maxFailures},
		"the caller has gone": {gone, context.Canceled, maxFailures - 1},
	} {
		t.Run(title, func(t *testing.T) {
			control, err := New(Options{Access: fakeAccess{err: test.err}, Clock: clocktesting.NewFakePassiveClock(time.Now())})
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequestWithContext(test.ctx, http.MethodGet, "/", http.NoBody)
			request.Header.Set("Authorization", "Bearer some")
			from := network.Of(request.RemoteAddr)
			if _, err := control.Authenticate(request); err == nil {
				t.Error("no error")
			}
			if len(control.failures.pending) != 0 {
				t.Errorf("%d are pending", len(control.failures.pending))
			}
			if got := left(control.failures, from); got != test.left {
				t.Errorf("%d more may try, want %d", got, test.left)
			}
		})
	}
}

// oneUser is an access for which all credentials are those of one user. It counts what it is asked.
type oneUser struct {
	Access

	asked int
}

func (o *oneUser) Authenticate(*http.Request) (user.Info, error) {
	o.asked++
	return &user.DefaultInfo{Name: "alice"}, nil
}

// Neither may count as the caller's: one that was valid before would be doubted because of the other.
func TestSeveralCredentialsAreNone(t *testing.T) {
	access := &oneUser{}
	control, err := New(Options{Access: access, Clock: clocktesting.NewFakePassiveClock(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	authenticate := func(credentials ...string) error {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		for _, each := range credentials {
			request.Header.Add("Authorization", each)
		}
		_, err := control.Authenticate(request)
		if left := request.Header.Values("Authorization"); len(left) > 0 {
			t.Errorf("%d tokens go further", len(left))
		}
		return err
	}
	if err := authenticate("Bearer known"); err != nil {
		t.Fatal(err)
	}
	access.asked = 0
	for _, credentials := range [][]string{{"Bearer known", "Bearer other"}, {"Bearer other", "Bearer known"}, {"Bearer known", "Bearer known"}, {"", "Bearer known"}} {
		if err := authenticate(credentials...); !errors.Is(err, lock.ErrUnauthenticated) || errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("%q: got %v, want ErrUnauthenticated", credentials, err)
		}
	}
	if access.asked != 0 {
		t.Errorf("%d of them were looked at", access.asked)
	}
	if err := authenticate("Bearer known"); err != nil || access.asked != 1 {
		t.Errorf("the known one by itself: %v, asked %d times", err, access.asked)
	}
}

func TestCredentialsAreKnownUntilTheyAreRefused(t *testing.T) {
	l := newAuthFailureLimiter(clocktesting.NewFakePassiveClock(time.Now()), maxFailures)
	present := func(finish func(*attempt)) {
		begun, _ := l.begin(netip.MustParsePrefix("192.0.2.1/32"), "Bearer a")
		finish(&begun)
	}
	want := func(title string, want bool) {
		t.Helper()
		if l.isKnown("Bearer a") != want || l.isKnown("Bearer b") || l.isKnown("") {
			t.Errorf("%s: known: %t", title, !want)
		}
	}
	refuse := func(a *attempt) { a.fail() }
	want("at first", false)
	present(refuse)
	want("refused", false)
	present((*attempt).succeed)
	want("valid", true)
	present(refuse)
	want("refused since", false)
	present((*attempt).succeed)
	want("valid again", true)
}
