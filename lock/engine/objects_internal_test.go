package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestRetryAfter is about an API server that has no room for the first requests.
func TestRetryAfter(t *testing.T) {
	const refusals = 2
	cases := map[string]struct {
		request func(context.Context, Objects) error
		want    int32
	}{
		"a read is repeated": {func(ctx context.Context, locks Objects) error {
			_, err := locks.Get(ctx, "a", metav1.GetOptions{})
			return err
		}, refusals + 1},
		"a list is repeated": {func(ctx context.Context, locks Objects) error {
			_, err := locks.List(ctx, metav1.ListOptions{})
			return err
		}, refusals + 1},
		"a delete is repeated": {func(ctx context.Context, locks Objects) error {
			return locks.Delete(ctx, "a", metav1.DeleteOptions{})
		}, refusals + 1},
		"a create is not": {func(ctx context.Context, locks Objects) error {
			_, err := locks.Create(ctx, &v1alpha1.Lock{}, metav1.CreateOptions{})
			return err
		}, 1},
		"an update is not": {func(ctx context.Context, locks Objects) error {
			_, err := locks.Update(ctx, &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			return err
		}, 1},
		"a read is not if its time ends before": {func(ctx context.Context, locks Objects) error {
			ctx, cancel := context.WithDeadline(ctx, time.Now().Add(3*time.Second))
			defer cancel()
			_, err := locks.Get(ctx, "a", metav1.GetOptions{})
			return err
		}, 1},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) <= refusals {
					w.Header().Set("Retry-After", "5")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"apiVersion":"forrst.dev/v1alpha1","kind":"Lock"}`)
			}))
			defer server.Close()
			objects, err := NewObjectClient(&rest.Config{Host: server.URL}, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			now := clocktesting.NewFakeClock(time.Now())
			objects.clock = now
			answer := make(chan error, 1)
			go func() { answer <- test.request(t.Context(), objects.Locks("default")) }()
			for {
				select {
				case err := <-answer:
					if isRefused := test.want == 1; isRefused != apierrors.IsTooManyRequests(err) || !isRefused && err != nil {
						t.Errorf("got %v", err)
					}
					if got := requests.Load(); got != test.want {
						t.Errorf("%d requests, want %d", got, test.want)
					}
					return
				default:
					if now.HasWaiters() {
						now.Step(6 * time.Second)
					}
				}
			}
		})
	}
}
