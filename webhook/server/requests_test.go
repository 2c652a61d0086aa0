package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/webhook/sender"
	"forrst.dev/lock-operator/webhook/server"
)

// apiServer counts what it is asked.
type apiServer struct{ asked atomic.Int64 }

func (a *apiServer) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	a.asked.Add(1)
	return nil
}

func (a *apiServer) List(context.Context, client.ObjectList, ...client.ListOption) error {
	a.asked.Add(1)
	return nil
}

func (a *apiServer) authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	a.asked.Add(1)
	return authorizer.DecisionAllow, "", nil
}

// each asks in one of the ways in turn, and answers what the sender has to know.
func (a *apiServer) each() http.HandlerFunc {
	reader, rights := sender.LimitReader(a), sender.LimitAuthorizer(authorizer.AuthorizerFunc(a.authorize))
	ways := []func(context.Context) error{
		func(ctx context.Context) error { return reader.Get(ctx, client.ObjectKey{}, &corev1.Pod{}) },
		func(ctx context.Context) error { return reader.List(ctx, &corev1.PodList{}) },
		func(ctx context.Context) error {
			_, _, err := rights.Authorize(ctx, authorizer.AttributesRecord{})
			return err
		},
	}
	var turns atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		err := ways[int(turns.Add(1))%len(ways)](r.Context())
		seconds, isDelayed := apierrors.SuggestsClientDelay(err)
		switch {
		case apierrors.IsTooManyRequests(err) && isDelayed && seconds > 0:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte("{}"))
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("{}"))
		}
	}
}

func TestReviewsOfUnknownSendersCostRequestsAtARate(t *testing.T) {
	api := &apiServer{}
	now := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	// Six requests each second, three of one network.
	w := start(t, server.Options{MaxRequests: 6, Clock: now}, api.each())
	send := func(network, count, want int) {
		t.Helper()
		for range count {
			// Each on a connection of its own: connecting anew gives no more.
			code, _, err := w.post(w.client(network), strings.NewReader("{}"))
			if err != nil || code != want {
				t.Errorf("network %d: status %d, %v, want %d", network, code, err, want)
			}
		}
	}
	send(1, 3, http.StatusOK)
	send(1, 2, http.StatusTooManyRequests)
	send(2, 3, http.StatusOK)
	send(3, 1, http.StatusTooManyRequests) // The rate of all is used up.
	if api.asked.Load() != 6 {
		t.Errorf("the API server was asked %d times", api.asked.Load())
	}
	if got := w.refused("requests"); got != 3 {
		t.Errorf("%v refusals are counted", got)
	}
	now.SetTime(now.Now().Add(time.Second))
	send(1, 3, http.StatusOK)
	send(1, 1, http.StatusTooManyRequests)
}

func TestTheAPIServerHasNoRate(t *testing.T) {
	files, issued := authority(t)
	api := &apiServer{}
	w := start(t, server.Options{
		MaxRequests: 2, ClientCA: files.Authority, Clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)),
	}, api.each())
	client := w.client(1, issued)
	for range 10 {
		if code, _, err := w.post(client, strings.NewReader("{}")); err != nil || code != http.StatusOK {
			t.Fatalf("status %d, %v", code, err)
		}
	}
}

func TestHandlersLearnWhetherTheSenderIsVerified(t *testing.T) {
	files, issued := authority(t)
	for name, options := range map[string]server.Options{"verified": {ClientCA: files.Authority}, "unknown": {}} {
		t.Run(name, func(t *testing.T) {
			isVerified := make(chan bool, 1)
			w := start(t, options, func(_ http.ResponseWriter, r *http.Request) { isVerified <- sender.FromContext(r.Context()).IsVerified })
			if code, _, err := w.post(w.client(1, issued), strings.NewReader("{}")); err != nil || code != http.StatusOK {
				t.Fatalf("status %d, %v", code, err)
			}
			if got := <-isVerified; got != (options.ClientCA != "") {
				t.Errorf("IsVerified is %t", got)
			}
		})
	}
}
