package limits

import (
	"container/list"
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

const (
	// DefaultRequestsPerTenant is how many requests of one tenant are under way at a time by default, while other tenants ask
	// as well. With more, a small API server gives a tenant with many connections several times as much as one that makes one
	// request after the other.
	DefaultRequestsPerTenant = 1
	// lingerFor is how long a tenant counts after its last request: most send the next one soon.
	lingerFor = time.Second
)

// Requests bounds how many requests to the API server are under way at a time for one tenant while others ask as well. A
// tenant is the service accounts of a namespace together, or another user. An API server that is busy serves whoever has most
// requests most of the time, and so serves tenants alike. It is safe for concurrent use.
type Requests struct {
	perTenant int
	clock     clock.PassiveClock

	mu sync.Mutex
	// tenants are those that have requests, or had some lately.
	tenants map[string]*tenant
	swept   time.Time
}

// tenant is one that has requests, or had some lately.
type tenant struct {
	underWay int
	// releases and the other requests that wait have a channel each, in their order. It is closed when the request may begin.
	releases, waiting list.List
	// last is when its last request ended.
	last time.Time
}

// NewRequests returns requests of which so many of one tenant are under way at a time. Zero means any number.
func NewRequests(perTenant int, now clock.PassiveClock) *Requests {
	return &Requests{perTenant: perTenant, clock: now, tenants: map[string]*tenant{}}
}

type requestKey struct{}

// asker is for whom a request is made.
type asker struct {
	tenant    string
	isRelease bool
}

// ForCaller returns ctx for requests that are made for the user. It returns ctx as it is for [user.Anonymous]: where callers
// are not authenticated, they are not told apart.
func ForCaller(ctx context.Context, name string) context.Context { return forCaller(ctx, name, false) }

// ForRelease is [ForCaller] for the release of a lock of the user, which goes before other requests of its tenant.
func ForRelease(ctx context.Context, name string) context.Context { return forCaller(ctx, name, true) }

func forCaller(ctx context.Context, name string, isRelease bool) context.Context {
	if name == user.Anonymous {
		return ctx
	}
	if namespace := namespaceOf(name); namespace != "" {
		name = "namespace " + namespace
	}
	return context.WithValue(ctx, requestKey{}, asker{name, isRelease})
}

// RoundTripper makes requests wait as long as too many of their tenant are under way. Those whose context is not of [ForCaller],
// such as those of watches and controllers, do not wait. One whose context ends meanwhile was not sent, and fails as if the
// API server had refused it with the status 429.
func (r *Requests) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{requests: r, next: next}
}

type roundTripper struct {
	requests *Requests
	next     http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements [http.RoundTripper]. The request counts until the header of its answer has arrived.
func (t *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	by, ok := ctx.Value(requestKey{}).(asker)
	if !ok || t.requests.perTenant == 0 {
		return t.next.RoundTrip(request)
	}
	end, err := t.requests.begin(ctx, by)
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // As a round tripper must.
		}
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the request was not sent: other requests of its tenant were before it (%v)", err), 1)
	}
	defer end()
	return t.next.RoundTrip(request)
}

// begin returns when a request of the tenant may begin. The error is the cause of the end of ctx; then it must not.
func (r *Requests) begin(ctx context.Context, by asker) (end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.tenant(by.tenant)
	mayBegin, waiting := make(chan struct{}), &of.waiting
	if by.isRelease {
		waiting = &of.releases
	}
	place := waiting.PushBack(mayBegin)
	r.beginWaiting(of)
	r.mu.Unlock()
	select {
	case <-mayBegin:
	case <-ctx.Done():
	}
	r.mu.Lock()
	select {
	case <-mayBegin:
		return func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			of.underWay--
			of.last = r.clock.Now()
			r.beginWaiting(of)
		}, nil
	default:
		waiting.Remove(place)
		return nil, context.Cause(ctx)
	}
}

// tenant returns the tenant, and forgets those that had no request lately. It needs the mutex.
func (r *Requests) tenant(name string) *tenant {
	now := r.clock.Now()
	if now.Sub(r.swept) >= lingerFor {
		r.swept = now
		maps.DeleteFunc(r.tenants, func(_ string, each *tenant) bool {
			return each.underWay == 0 && each.releases.Len()+each.waiting.Len() == 0 && now.Sub(each.last) >= lingerFor
		})
	}
	of := r.tenants[name]
	if of == nil {
		of = &tenant{last: now}
		r.tenants[name] = of
	}
	return of
}

// beginWaiting begins as many requests of the tenant as may be under way. It needs the mutex.
func (r *Requests) beginWaiting(of *tenant) {
	for _, waiting := range []*list.List{&of.releases, &of.waiting} {
		for first := waiting.Front(); first != nil && (of.underWay < r.perTenant || len(r.tenants) == 1); first = waiting.Front() {
			mayBegin, _ := waiting.Remove(first).(chan struct{})
			close(mayBegin)
			of.underWay++
		}
	}
}
