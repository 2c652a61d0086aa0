package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// reviews is an API server that knows the tokens of a scraper, which may get metrics, and of a stranger, who
// may not, and one for another audience. It counts what it is asked.
type reviews struct {
	tokens, rights atomic.Int64
	isAway         atomic.Bool
}

// ServeHTTP implements [http.Handler].
func (a *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case a.isAway.Load():
		http.Error(w, "away", http.StatusInternalServerError)
		return
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		a.tokens.Add(1)
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if name := review.Spec.Token; name == "scraper" || name == "stranger" {
			review.Status.Authenticated, review.Status.User.Username = true, name
		} else if name == "elsewhere" {
			review.Status.Error = "[invalid bearer token, token audiences [\"elsewhere\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]]"
		} else {
			review.Status.Error = "invalid bearer token"
		}
		answer = review
	default:
		a.rights.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "scraper" && asked != nil && asked.Verb == "get" && asked.Path == "/metrics"
		answer = review
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}

// serveMetrics returns the handler of metrics, as the manager makes it, with what it asks and when.
func serveMetrics(t *testing.T) (http.Handler, *reviews, *clocktesting.FakePassiveClock) {
	t.Helper()
	return serveMetricsLogging(t, logr.Discard())
}

func serveMetricsLogging(t *testing.T, logger logr.Logger) (http.Handler, *reviews, *clocktesting.FakePassiveClock) {
	t.Helper()
	asked := &reviews{}
	server := httptest.NewServer(asked)
	t.Cleanup(server.Close)
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	handler, err := newMetricsHandler(config, server.Client(), now, logger,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the metrics") }))
	if err != nil {
		t.Fatal(err)
	}
	return handler, asked, now
}

// scrape returns the answer to a request from an address of the network.
func scrape(ctx context.Context, handler http.Handler, method, network, token string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, method, "/metrics", http.NoBody)
	request.RemoteAddr = network + ":1000"
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer
}

func TestMetricsAreServedToCallersWhoMayGetThem(t *testing.T) {
	handler, asked, _ := serveMetrics(t)
	for token, want := range map[string]int{"scraper": http.StatusOK, "stranger": http.StatusForbidden, "invalid": http.StatusUnauthorized, "": http.StatusUnauthorized} {
		for range 3 {
			answer := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", token)
			if answer.Code != want || (want == http.StatusOK) != (answer.Body.String() == "the metrics") {
				t.Errorf("token %q: status %d: %s", token, answer.Code, answer.Body)
			}
		}
	}
	if got := asked.rights.Load(); got != 2 {
		t.Errorf("%d rights were reviewed, want one of each user", got)
	}
	asked.isAway.Store(true)
	if answer := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", "unknown"); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("without an API server: status %d", answer.Code)
	}
}

func TestInvalidTokensForMetricsAreLimited(t *testing.T) {
	handler, asked, now := serveMetrics(t)
	send := func(network string) (refused int) {
		for number := range 100 {
			if answer := scrape(t.Context(), handler, http.MethodGet, network, fmt.Sprint("invalid-", number)); answer.Code == http.StatusTooManyRequests {
				if answer.Header().Get("Retry-After") == "" {
					t.Error("a refusal does not say when to try again")
				}
				refused++
			}
		}
		return refused
	}
	if got := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", "scraper").Code; got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	asked.tokens.Store(0)
	if refused, reviewed := send("192.0.2.1"), asked.tokens.Load(); refused != 100-maxMetricsAuthFailures || reviewed != maxMetricsAuthFailures {
		t.Errorf("of 100 requests with invalid tokens, %d cost a review and %d were refused", reviewed, refused)
	}
	if got := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", "scraper").Code; got != http.StatusOK {
		t.Errorf("a token that was valid before is refused beside them: status %d", got)
	}
	if got := scrape(t.Context(), handler, http.MethodGet, "192.0.2.2", "stranger").Code; got != http.StatusForbidden {
		t.Errorf("another network is refused: status %d", got)
	}
	asked.tokens.Store(0)
	now.SetTime(now.Now().Add(2 * time.Second))
	send("192.0.2.1")
	if reviewed := asked.tokens.Load(); reviewed != 2 {
		t.Errorf("%d tokens were reviewed two seconds later", reviewed)
	}
}

// What a client can cause any number of times is logged at a high verbosity at most.
func TestRefusedTokensForMetricsAreNotLogged(t *testing.T) {
	var lines []string
	handler, asked, _ := serveMetricsLogging(t, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for _, token := range []string{"elsewhere", "invalid", ""} {
		answer := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", token)
		if answer.Code != http.StatusUnauthorized || answer.Header().Get("WWW-Authenticate") == "" || strings.Contains(answer.Body.String(), "audience") {
			t.Errorf("token %q: status %d: %s", token, answer.Code, answer.Body)
		}
	}
	asked.isAway.Store(true)
	if answer := scrape(t.Context(), handler, http.MethodGet, "192.0.2.1", "unknown"); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("without an API server: status %d", answer.Code)
	}
	if len(lines) > 0 {
		t.Errorf("the log has\n%s", strings.Join(lines, "\n"))
	}
}

// Each method is a right of its own, of which the answer is remembered by itself.
func TestOnlyMetricsAreToBeGot(t *testing.T) {
	handler, asked, _ := serveMetrics(t)
	for _, method := range []string{http.MethodPost, http.MethodHead, "INVENTED"} {
		if answer := scrape(t.Context(), handler, method, "192.0.2.1", "stranger"); answer.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, answer.Code)
		}
	}
	if got := asked.tokens.Load() + asked.rights.Load(); got != 0 {
		t.Errorf("the API server was asked %d times", got)
	}
}
