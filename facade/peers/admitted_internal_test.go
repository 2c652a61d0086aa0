package peers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// message is one that may show a token.
type message struct{ token string }

func (m *message) ShowToken(token string) { m.token = token }

func (m *message) ShownToken() string { return m.token }

// telling is a stream of which each message shows a token.
type telling struct {
	stream
	tokens chan string
}

func (s telling) RecvMsg(into any) error {
	into.(*message).token = <-s.tokens
	return nil
}

// A stream goes on by the next token of its replica, and by no other one.
func TestAStreamGoesOnByTheNextToken(t *testing.T) {
	for name, test := range map[string]struct {
		next string
		want time.Duration
	}{
		"the next one":                          {of("replica-0", 3*time.Minute), 3 * time.Minute},
		"one that ends later than a stream may": {of("replica-0", 9*time.Hour), maxStreamTime + 30*time.Second},
		"one of another Pod":                    {of("replica-1", 3*time.Minute), time.Minute},
		"one that the API server refuses":       {of("replica-0", 4*time.Minute), time.Minute},
		"none":                                  {"", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := tokens{}
				for _, token := range []string{of("replica-0", time.Minute), of("replica-0", 3*time.Minute), of("replica-0", 9*time.Hour), of("replica-1", 3*time.Minute)} {
					known["Bearer "+token] = "replica"
				}
				service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{Clock: clock.RealClock{}, User: "replica", Access: known}}
				began, shown := time.Now(), make(chan string, 1)
				ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+of("replica-0", time.Minute)))
				err := service.admit(nil, telling{stream{ctx: ctx}, shown}, nil, func(_ any, served grpc.ServerStream) error {
					<-time.After(30 * time.Second)
					shown <- test.next
					got := &message{}
					if err := served.RecvMsg(got); err != nil || got.token != "" {
						t.Errorf("the message has the token %q still, or failed: %v", got.token, err)
					}
					<-served.Context().Done()
					return context.Cause(served.Context())
				})
				if lasted := time.Since(began); lasted != test.want || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ends after %v, not %v, with %v", lasted, test.want, err)
				}
			})
		})
	}
}

// away is an API server that does not answer the first questions.
type away struct {
	Authenticator
	left int
}

func (a *away) Authenticate(request *http.Request) (user.Info, error) {
	if a.left > 0 {
		a.left--
		return nil, errors.New("no answer")
	}
	return a.Authenticator.Authenticate(request)
}

// A replica shows its next token once. If the API server is away then, it is asked again, now and then.
func TestATokenThatCouldNotBeReviewedIsReviewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := of("replica-0", 9*time.Minute)
		access := &counting{Authenticator: &away{Authenticator: tokens{"Bearer " + next: "replica"}, left: 3}}
		service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{Clock: clock.RealClock{}, User: "replica", Access: access}}
		shown := make(chan string, 1)
		served := newAdmitted(service, telling{stream{ctx: t.Context()}, shown}, claims{user: "replica", Expiry: time.Now().Add(time.Minute).Unix()})
		defer served.end()
		served.shown.Kubernetes.Pod.Name = "replica-0"
		shown <- next
		for range 50 {
			if err := served.RecvMsg(&message{}); err != nil {
				t.Error(err)
			}
			<-time.After(time.Second)
			shown <- ""
		}
		if asked := access.asked.Load(); asked != 4 {
			t.Errorf("it was asked %d times, not 4", asked)
		}
		<-time.After(8 * time.Minute)
		if err := served.Context().Err(); err != nil {
			t.Errorf("the stream has ended with its first token: %v", context.Cause(served.Context()))
		}
	})
}

// counting counts what it is asked.
type counting struct {
	Authenticator
	asked atomic.Int32
}

func (c *counting) Authenticate(request *http.Request) (user.Info, error) {
	c.asked.Add(1)
	return c.Authenticator.Authenticate(request)
}

// Messages may still be received while a stream ends. They begin no review any more, which would outlive the stream.
func TestAStreamThatHasEndedBeginsNoReview(t *testing.T) {
	for name, end := range map[string]func(*admitted){"while it goes on": func(*admitted) {}, "after its end": (*admitted).end} {
		t.Run(name, func(t *testing.T) {
			access, shown := &counting{Authenticator: tokens{}}, make(chan string, 1)
			service := &Service{rates: newReviewRates(clock.RealClock{}), options: Options{Clock: clock.RealClock{}, User: "replica", Access: access}}
			served := newAdmitted(service, telling{stream{ctx: t.Context()}, shown}, claims{user: "replica"})
			defer served.end()
			end(served)
			shown <- of("replica-0", time.Minute)
			if err := served.RecvMsg(&message{}); err != nil {
				t.Error(err)
			}
			served.reviews.Wait()
			if asked := access.asked.Load(); (asked > 0) != (name == "while it goes on") {
				t.Errorf("%d reviews", asked)
			}
		})
	}
}

// of returns the token of a Pod that expires after the time, in a bubble of synctest.
func of(pod string, after time.Duration) string {
	expiry := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)
	return bearer(fmt.Sprintf(`{"exp":%d,"kubernetes.io":{"pod":{"name":%q}}}`, expiry.Unix(), pod))[len("Bearer "):]
}

// sending keeps the tokens of the messages that are sent.
type sending struct {
	grpc.ClientStream
	tokens []string
}

func (s *sending) SendMsg(sent any) error {
	s.tokens = append(s.tokens, sent.(*message).token)
	return nil
}

// A replica shows its token again once its file has another one.
func TestAReplicaShowsItsNextToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	now, sent := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), &sending{}
	opened, err := openIdentifying(tokenFile(file), now)(t.Context(), nil, nil, "", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return sent, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "first", "next", "next"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := opened.SendMsg(&message{}); err != nil {
				t.Fatal(err)
			}
			now.SetTime(now.Now().Add(lookAgain / 2))
		}
	}
	want := []string{"", "", "first", "", "next", "", "", ""}
	if got := fmt.Sprintf("%q", sent.tokens); got != fmt.Sprintf("%q", want) {
		t.Errorf("the tokens shown are %s, not %q", got, want)
	}
}
