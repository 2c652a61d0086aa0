package peers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// tokens are those that the API server knows, by the header that shows them.
type tokens map[string]string

func (t tokens) Authenticate(request *http.Request) (user.Info, error) {
	name, isKnown := t[request.Header.Get("Authorization")]
	if !isKnown {
		return nil, errors.New("not authenticated")
	}
	if name, pod, isBound := strings.Cut(name, " of "); isBound {
		return &user.DefaultInfo{Name: name, Extra: map[string][]string{serviceaccount.PodNameKey: {pod}}}, nil
	}
	return &user.DefaultInfo{Name: name}, nil
}

type stream struct {
	grpc.ServerStream
	ctx context.Context // a stream has one
}

func (s stream) Context() context.Context { return s.ctx }

func TestOnlyReplicasAreAdmitted(t *testing.T) {
	const own = "system:serviceaccount:forrst-system:facade"
	service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{Clock: clock.RealClock{}, User: own, Access: tokens{
		"Bearer own": own, "Bearer tenant": "system:serviceaccount:tenant:default", "Bearer like": own + "2",
	}}}
	for header, want := range map[string]codes.Code{
		"Bearer own": codes.OK, "Bearer tenant": codes.PermissionDenied, "Bearer like": codes.PermissionDenied,
		"Bearer other": codes.Unauthenticated, "": codes.Unauthenticated,
	} {
		isServed := false
		err := service.admit(nil, stream{ctx: metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", header))}, nil,
			func(any, grpc.ServerStream) error { isServed = true; return nil })
		if got := status.Code(err); got != want || isServed != (want == codes.OK) {
			t.Errorf("%q: %v, served %t", header, err, isServed)
		}
	}
	if err := service.admit(nil, stream{ctx: t.Context()}, nil, nil); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without metadata: %v", err)
	}
}

// admission opens a stream with a token, and returns how that ended.
func admission(t *testing.T, service *Service, header string) (code codes.Code, isServed bool) {
	t.Helper()
	err := service.admit(nil, stream{ctx: metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", header))}, nil,
		func(any, grpc.ServerStream) error { isServed = true; return nil })
	return status.Code(err), isServed
}

// bearer returns the header with a token of these claims.
func bearer(claims string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// bound returns the header with a token that says that it is of a Pod.
func bound(user, audience, pod string) string {
	return bearer(fmt.Sprintf(`{"sub":%q,"aud":[%q],"kubernetes.io":{"pod":{"name":%q}}}`, user, audience, pod))
}

// counted counts what it is asked.
type counted struct {
	Authenticator

	asked int
}

func (c *counted) Authenticate(request *http.Request) (user.Info, error) {
	c.asked++
	return c.Authenticator.Authenticate(request)
}

// A token of the account that is of no replica, such as one that was requested for itself, opens no stream. The API
// server is asked about those alone that say that they are of a replica.
func TestATokenIsOfAReplica(t *testing.T) {
	const own = "system:serviceaccount:forrst-system:facade"
	said := bound(own, Audience, "facade-1")
	for header, test := range map[string]struct {
		knows tokens
		want  codes.Code
		asked int
	}{
		said + " ":                       {tokens{said + " ": own + " of facade-1"}, codes.OK, 1},
		said:                             {tokens{said: own + " of facade-0"}, codes.PermissionDenied, 1},
		said + "a":                       {tokens{said + "a": own}, codes.PermissionDenied, 1},
		said + "b":                       {tokens{}, codes.Unauthenticated, 1},
		bound(own, Audience, "facade-0"): {tokens{}, codes.PermissionDenied, 0},
		bound(own, Audience, ""):         {tokens{}, codes.PermissionDenied, 0},
		bound(own, "other", "facade-1"):  {tokens{}, codes.PermissionDenied, 0},
		bound("a", Audience, "facade-1"): {tokens{}, codes.PermissionDenied, 0},
		"Bearer random":                  {tokens{}, codes.PermissionDenied, 0},
		"Bearer a.random.one":            {tokens{}, codes.PermissionDenied, 0},
		"":                               {tokens{}, codes.PermissionDenied, 0},
	} {
		access := &counted{Authenticator: test.knows}
		service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{
			Clock: clock.RealClock{}, User: own, IsMember: func(pod string) bool { return pod == "facade-1" }, Access: access,
		}}
		if got, isServed := admission(t, service, header); got != test.want || isServed != (got == codes.OK) || access.asked != test.asked {
			t.Errorf("%q: %v, served %t, asked %d times", header, got, isServed, access.asked)
		}
	}
}

// A guest is no replica: what it may ask for is in the context of its stream. A Pod must have its token.
func TestGuestsAreAdmitted(t *testing.T) {
	const own, guest = "system:serviceaccount:forrst-system:facade", "system:serviceaccount:forrst-system:controllers"
	said := bound(guest, Audience, "controllers-1")
	for name, test := range map[string]struct {
		header string
		as     string
		guest  string
		want   codes.Code
	}{
		"a guest":                     {said, guest + " of controllers-1", guest, codes.OK},
		"a token of no Pod":           {bound(guest, Audience, ""), guest, guest, codes.PermissionDenied},
		"a token that only says so":   {said, guest, guest, codes.PermissionDenied},
		"a token of another audience": {bound(guest, "other", "controllers-1"), guest + " of controllers-1", guest, codes.PermissionDenied},
		"no guests":                   {said, guest + " of controllers-1", "", codes.PermissionDenied},
		"another account":             {said, "system:serviceaccount:forrst-system:webhook of controllers-1", guest, codes.PermissionDenied},
		"the façade's, of a Pod that is not ready": {bound(own, Audience, "facade-0"), own + " of facade-0", guest, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{
				Clock: clock.RealClock{}, User: own, Guest: test.guest, Access: tokens{test.header: test.as},
				IsMember: func(pod string) bool { return pod == "facade-1" },
			}}
			if got, isServed := admission(t, service, test.header); got != test.want || isServed != (got == codes.OK) {
				t.Errorf("%v, served %t", got, isServed)
			}
		})
	}
}

func TestReviewsAreBounded(t *testing.T) {
	at := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC))
	access := &counted{Authenticator: tokens{}}
	service := &Service{rates: newReviewRates(at), options: Options{Clock: at, User: "replica", Access: access}}
	for i := range 100 {
		if got, _ := admission(t, service, fmt.Sprint("Bearer ", i)); got == codes.ResourceExhausted != (i >= reviewsAtOnce) {
			t.Fatalf("token %d: %v", i, got)
		}
	}
	at.SetTime(at.Now().Add(time.Second))
	for i := range 100 {
		_, _ = admission(t, service, fmt.Sprint("Bearer ", i))
	}
	if access.asked != reviewsAtOnce+reviewsPerSecond {
		t.Errorf("%d reviews", access.asked)
	}
	if !service.rates.permits(origin{from: netip.MustParsePrefix("10.0.0.2/32")}) {
		t.Error("one network keeps another one out")
	}
}

// acceptAll passes connections on until the listener is closed.
func acceptAll(listener net.Listener, accepted chan<- net.Conn) {
	defer close(accepted)
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		accepted <- connection
	}
}

// TestConnectionsAreBounded opens more connections of one address than there may be, while one of them has a stream.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := serviceFor(t, inner, tokens{"Bearer a": "replica"})
	accepted := make(chan net.Conn)
	go acceptAll(service.listener, accepted)
	dial := func() net.Conn {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		<-accepted
		return connection
	}
	wantClosed := func(connection net.Conn, within time.Duration, want bool) {
		t.Helper()
		if err := connection.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) == want {
			t.Errorf("it is closed, want %t: %v", want, err)
		}
	}
	held, silent := dial(), dial()
	ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer a")), &peer.Peer{Addr: held.LocalAddr()})
	err = service.admit(nil, stream{ctx: ctx}, nil, func(any, grpc.ServerStream) error {
		for range maxPerOrigin - 1 {
			dial()
		}
		wantClosed(silent, time.Minute, true)
		wantClosed(held, time.Millisecond, false)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	_ = service.listener.Close()
	for connection := range accepted {
		t.Errorf("a connection of %s is open", connection.RemoteAddr())
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	now := time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC)
	for credentials, want := range map[string]time.Duration{
		bearer(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Minute).Unix())): time.Minute,
		bearer(fmt.Sprintf(`{"exp":%d}`, now.Add(-time.Hour).Unix())):  -time.Hour,
		bearer(fmt.Sprintf(`{"exp":%d}`, now.Add(9*time.Hour).Unix())): maxStreamTime,
		bearer(`{}`):    maxStreamTime,
		bearer(`"exp"`): maxStreamTime,
		"Bearer a.%.b":  maxStreamTime,
		"Bearer opaque": maxStreamTime,
		"":              maxStreamTime,
	} {
		if got := claimsOf(credentials).timeLeft(now); got != want {
			t.Errorf("%q: after %s, not %s", credentials, got, want)
		}
	}
	header := bearer(fmt.Sprintf(`{"exp":%d}`, now.Add(time.Second).Unix()))
	service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{Clock: clocktesting.NewFakePassiveClock(now), User: "replica", Access: tokens{header: "replica"}}}
	var ended error
	_ = service.admit(nil, stream{ctx: metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", header))}, nil,
		func(_ any, served grpc.ServerStream) error {
			<-served.Context().Done()
			ended = context.Cause(served.Context())
			return ended
		})
	if !errors.Is(ended, context.DeadlineExceeded) {
		t.Errorf("the stream ended with %v", ended)
	}
}
