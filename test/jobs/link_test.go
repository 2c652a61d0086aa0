package jobs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// errCut is what a request fails with that, or whose answer, does not get through.
var errCut = errors.New("the connection to the API server is cut")

// link is the connection of a replica to the API server. It gets everything through
// unless it is told otherwise. Safe for concurrent use.
type link struct {
	mu    sync.Mutex
	isCut bool
	rules []*linkRule
}

// linkRule says what becomes of the first request that matches, and of those after it.
type linkRule struct {
	matches func(*http.Request) bool
	// isCarriedOut says that the API server gets the request, and only its answer is lost.
	isCarriedOut bool
	// follows are the requests that fail from then on.
	follows func(*http.Request) bool
	isMet   bool
	met     chan struct{}
	// held is the request that was met, without its deadline.
	held *http.Request
	next http.RoundTripper
}

// through connects a replica or a candidate by the link.
func (l *link) through(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return linked{next, l} })
}

// cut fails all requests from now on, and loses all answers that are under way.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

// lose has the answer of the first request that matches get lost. The channel is closed
// when that has happened.
func (l *link) lose(matches func(*http.Request) bool) <-chan struct{} {
	return l.add(&linkRule{matches: matches, isCarriedOut: true, follows: func(*http.Request) bool { return false }})
}

// freeze lets the first request that matches be carried out or not, and none that follows.
func (l *link) freeze(matches func(*http.Request) bool, isCarriedOut bool, follows func(*http.Request) bool) <-chan struct{} {
	return l.add(&linkRule{matches: matches, isCarriedOut: isCarriedOut, follows: follows})
}

// hold keeps back the first request that matches and fails all later ones: the
// process is frozen. When the channel is closed, send sends the request.
func (l *link) hold(matches func(*http.Request) bool) (held <-chan struct{}, send func() error) {
	rule := &linkRule{matches: matches, follows: func(*http.Request) bool { return true }}
	return l.add(rule), func() error {
		response, err := rule.next.RoundTrip(rule.held)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
}

func (l *link) add(rule *linkRule) <-chan struct{} {
	rule.met = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, rule)
	return rule.met
}

// judge says what becomes of a request. The rule is told of the end of the request.
func (l *link) judge(request *http.Request) (isSent, isAnswered bool, rule *linkRule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return false, false, nil
	}
	for _, rule := range l.rules {
		switch {
		case rule.isMet && rule.follows(request):
			return false, false, nil
		case !rule.isMet && rule.matches(request):
			rule.isMet = true
			return rule.isCarriedOut, false, rule
		}
	}
	return true, true, nil
}

type linked struct {
	next http.RoundTripper
	link *link
}

// RoundTrip implements [http.RoundTripper].
func (l linked) RoundTrip(request *http.Request) (*http.Response, error) {
	isSent, isAnswered, rule := l.link.judge(request)
	if rule != nil {
		rule.held, rule.next = request.Clone(context.WithoutCancel(request.Context())), l.next
		if request.GetBody != nil {
			rule.held.Body, _ = request.GetBody() // a copy in memory
		}
		defer close(rule.met)
	}
	if !isSent {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, errCut
	}
	response, err := l.next.RoundTrip(request)
	if err != nil || isAnswered && !l.link.isDown() {
		return response, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return nil, errCut
}

func (l *link) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// isStartOf matches the write that starts a Job.
func isStartOf(namespace, job string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/namespaces/"+namespace+"/jobs/"+job) &&
			strings.Contains(bodyOf(request), `"suspend":false`)
	}
}

// isGrantOf matches the write that takes a free lock.
func isGrantOf(namespace, key string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/namespaces/"+namespace+"/locks") &&
			strings.Contains(bodyOf(request), `"`+key+`"`)
	}
}

// isReleaseOf matches the write that releases a lock or hands it off. Renewals are far off.
func isReleaseOf(namespace, key string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method != http.MethodGet && strings.HasSuffix(request.URL.Path, "/namespaces/"+namespace+"/locks/"+key)
	}
}

// isAbout matches the writes of a lock and of the Jobs of that key, whose names begin with
// it.
func isAbout(namespace, key string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		return request.Method != http.MethodGet && (strings.Contains(request.URL.Path, "/namespaces/"+namespace+"/jobs/"+key) ||
			strings.HasSuffix(request.URL.Path, "/namespaces/"+namespace+"/locks/"+key) || isGrantOf(namespace, key)(request))
	}
}

func bodyOf(request *http.Request) string {
	if request.GetBody == nil {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	content, _ := io.ReadAll(body) // of a copy in memory
	return string(content)
}
