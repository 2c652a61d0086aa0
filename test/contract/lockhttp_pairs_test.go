package contract_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/test/support/pairs"
)

// reservation is a lock that a client of a service has reserved a flag with.
type reservation struct {
	// replica is the one that the call goes to, and backend has its locks.
	replica      service
	backend      lock.Backend
	namespace    string
	token        string
	fencingToken int64
	round        int
}

// request returns a call that sends a request, and is answered with its status.
func request(method, path, body string, hasToken bool) func(context.Context, reservation) func() string {
	return pairs.Direct(func(ctx context.Context, held reservation) string {
		var headers []string
		if hasToken {
			headers = []string{"X-Lock-Token", held.token}
		}
		return strconv.Itoa(held.replica.do(ctx, method, path, body, headers...).Code)
	})
}

const (
	flagKey  = v1alpha1.FullKey("lock:flag:feature-x")
	reserved = `{"ttl_seconds":600}`
	// Whoever waits so long is counted.
	waits = `{"ttl_seconds":600,"wait_seconds":3600}`
)

// forced returns a call of the service itself that ends the lock of its client by force.
func forced(preconditions func(reservation) []lock.Precondition) func(context.Context, reservation) func() string {
	return pairs.Direct(func(ctx context.Context, held reservation) string {
		switch err := held.backend.ForceRelease(ctx, held.namespace, flagKey, "stuck", preconditions(held)...); {
		case err == nil:
			return "204"
		case errors.Is(err, lock.ErrNotHeld):
			return "404"
		default:
			return err.Error()
		}
	})
}

var callsOfClients = []pairs.Call[reservation]{
	{
		Name: "release", Answers: pairs.Answers{Ended: "204", Others: []string{"410"}},
		Prepare: request(http.MethodDelete, flagLockPath, "", true),
	},
	{
		Name: "forced release", Answers: pairs.Answers{Ended: "204", Others: []string{"404"}, EndsNext: true},
		Prepare: forced(func(reservation) []lock.Precondition { return nil }),
	},
	{
		Name: "forced release of the grant", Answers: pairs.Answers{Ended: "204", Others: []string{"404"}},
		Prepare: forced(func(held reservation) []lock.Precondition {
			return []lock.Precondition{{FencingToken: held.fencingToken}}
		}),
	},
	{
		Name: "renewal", Answers: pairs.Answers{Others: []string{"200", "410"}},
		Prepare: request(http.MethodPut, flagLockPath, reserved, true),
	},
	{
		Name: "write under the lock", Answers: pairs.Answers{Others: []string{"200", "410"}},
		Prepare: request(http.MethodPatch, flagPath, `{}`, true),
	},
	{
		Name: "write without the lock", Answers: pairs.Answers{Others: []string{"423", "200"}},
		Prepare: request(http.MethodPatch, flagPath, `{}`, false),
	},
	{
		Name: "request of another client", Answers: pairs.Answers{Took: "201", Others: []string{"423"}},
		Prepare: request(http.MethodPost, flagLockPath, reserved, false),
		GiveBack: func(ctx context.Context, held reservation) {
			Expect(held.backend.ForceRelease(ctx, held.namespace, flagKey, "cleared")).To(Succeed())
		},
	},
}

// replicas are two replicas of a service, each with a backend.
type replicas struct {
	backends  [2]lock.Backend
	namespace string
	// waiting returns how many clients wait, or have waited.
	waiting func() int
}

// describeClients declares specs about any two calls at once of clients of a service.
func describeClients(start func(ctx context.Context) replicas) {
	var started replicas
	var services [2]service
	BeforeEach(func(ctx context.Context) {
		started = start(ctx)
		for index, backend := range started.backends {
			services[index] = startService(backend, started.namespace)
		}
	})
	through := func(held reservation, replica int) reservation {
		held.replica, held.backend = services[replica], started.backends[replica]
		return held
	}
	acquire := func(ctx context.Context, body string) (reservation, *httptest.ResponseRecorder) {
		answer := services[0].do(ctx, http.MethodPost, flagLockPath, body)
		granted := bodyOf[lockhttp.Lock](answer)
		return through(reservation{namespace: started.namespace, token: granted.LockToken, fencingToken: granted.FencingToken}, 0), answer
	}
	release := func(ctx context.Context, held reservation, status int) {
		GinkgoHelper()
		Expect(services[0].do(ctx, http.MethodDelete, flagLockPath, "", "X-Lock-Token", held.token).Code).To(Equal(status))
	}
	pairs.Declare(&pairs.Subject[reservation]{
		Acquire: func(ctx context.Context, round int) reservation {
			held, answer := acquire(ctx, reserved)
			Expect(answer.Code).To(Equal(http.StatusCreated), "%s", answer.Body)
			held.round = round
			return held
		},
		Elsewhere: func(held reservation) reservation { return through(held, held.round%2) },
		Wait: func(ctx context.Context, _ reservation) func(bool) {
			before := started.waiting()
			waited := make(chan reservation, 1)
			go func() {
				defer close(waited)
				defer GinkgoRecover()
				next, answer := acquire(ctx, waits)
				Expect(answer.Code).To(Equal(http.StatusCreated), "%s", answer.Body)
				waited <- next
			}()
			Eventually(started.waiting).WithContext(ctx).WithTimeout(answer).Should(Equal(before + 1))
			return func(hasEnded bool) {
				release(ctx, <-waited, map[bool]int{false: http.StatusNoContent, true: http.StatusGone}[hasEnded])
			}
		},
		Release: func(ctx context.Context, held reservation) { release(ctx, held, http.StatusNoContent) },
		End: func(ctx context.Context, _ reservation, _ string) {
			Expect(services[1].do(ctx, http.MethodGet, flagLockPath, "").Code).To(Equal(http.StatusNotFound))
		},
		Spread: 5 * time.Millisecond,
	}, callsOfClients)
}

var _ = Describe("Two calls at once of clients of a service about a grant", func() {
	Describe("on engines of its own", func() {
		describeClients(func(ctx context.Context) replicas {
			return replicas{[2]lock.Backend{direct, directRival}, newNamespace(ctx), direct.waits.count}
		})
	})
	Describe("through façades", func() {
		describeClients(func(ctx context.Context) replicas {
			namespace := newNamespace(ctx)
			return replicas{
				[2]lock.Backend{serve(served, namespace, allowed), serve(servedRival, namespace, allowed)}, namespace, served.waits.count,
			}
		})
	})
})
