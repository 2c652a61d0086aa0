package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Fixture is a backend for one spec. Its expired locks are not reaped, and its limits are
// [rules.DefaultLimits].
type Fixture struct {
	Backend lock.Backend
	// Rival contends for the same locks by another way, such as another replica of the
	// service. Nil skips the specs that need one.
	Rival lock.Backend
	// Forbidden is Backend for a caller who lacks every right to locks.
	Forbidden lock.Backend
	// Namespace is the namespace of the spec's locks. It holds no lock at first.
	Namespace string
	// Elsewhere is another namespace without locks. Empty means that the backend serves
	// one namespace only.
	Elsewhere string
	// Holder is the identity that Backend and Rival stamp into their locks.
	Holder string
	// Queued returns how many callers have started to wait for the lock, for an hour or
	// longer, on Backend. It may or may not count callers that have stopped waiting. Nil
	// skips the specs that depend on the order of callers.
	Queued func(key v1alpha1.FullKey) int
	// Label writes to the metadata of a lock. Nil means that the backend stores no Lock
	// objects.
	Label func(ctx context.Context, key v1alpha1.FullKey) error
	// Clock is the clock of the backend. Nil means the real one.
	Clock *clocktesting.FakeClock
}

const (
	// long is a ttl that no spec outlives, also on a slow machine.
	long = 10 * time.Minute
	// brief is a ttl that ends soon, perhaps before its caller is answered.
	brief = 500 * time.Millisecond
	// roomy is a ttl that specs can wait for, and long enough for a few requests also on a slow machine.
	roomy = 4 * time.Second
	// patience is the wait of a caller that is to be granted in the end.
	patience = time.Hour
	// soon bounds what happens without the end of a ttl, with room for a slow machine.
	soon = time.Minute
	// poll is how often a spec checks.
	poll = 5 * time.Millisecond
	// quiet is how long a spec checks that nothing happens.
	quiet = 200 * time.Millisecond
	// secret begins all owner tokens. No error may contain it.
	secret = "secret-"

	key     = "billing:report"
	fullKey = v1alpha1.FullKey("lock:billing:report")

	alice, bob, carol = secret + "alice", secret + "bob", secret + "carol"
)

// subject is the fixture of the running spec.
type subject struct{ Fixture }

// by returns a request for the lock of the key under an owner token.
func by(owner string, changes ...func(*lock.Request)) lock.Request {
	request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, TTL: long}}
	for _, change := range changes {
		change(&request)
	}
	return request
}

func ttl(d time.Duration) func(*lock.Request)  { return func(r *lock.Request) { r.TTL = d } }
func wait(d time.Duration) func(*lock.Request) { return func(r *lock.Request) { r.Wait = d } }
func keyed(key string) func(*lock.Request)     { return func(r *lock.Request) { r.Key = key } }
func reasoned(text string) func(*lock.Request) { return func(r *lock.Request) { r.Reason = text } }
func of(function, key string) func(*lock.Request) {
	return func(r *lock.Request) { r.Scope, r.Function, r.Key = v1alpha1.ScopeFunction, function, key }
}

func (s *subject) acquire(ctx context.Context, request lock.Request) (*v1alpha1.Lock, error) {
	return s.Backend.Acquire(ctx, s.Namespace, request)
}

// acquired acquires a lock.
func (s *subject) acquired(ctx context.Context, request lock.Request) *v1alpha1.Lock {
	GinkgoHelper()
	granted, err := s.acquire(ctx, request)
	Expect(err).NotTo(HaveOccurred())
	Expect(granted.Spec.FullKey()).To(Equal(request.FullKey()))
	return granted
}

func (s *subject) renew(ctx context.Context, owner string, ttl time.Duration) (*v1alpha1.Lock, error) {
	GinkgoHelper()
	renewed, err := s.Backend.Renew(ctx, s.Namespace, fullKey, lock.Proof{Owner: owner}, ttl)
	return renewed, s.worded("renew", err)
}

func (s *subject) release(ctx context.Context, owner string) error {
	GinkgoHelper()
	return s.worded("release", s.Backend.Release(ctx, s.Namespace, fullKey, lock.Proof{Owner: owner}))
}

// owner returns the owner token of the lock, or the error of reading it.
func (s *subject) owner(ctx context.Context) (string, error) {
	GinkgoHelper()
	held, err := s.Backend.Get(ctx, s.Namespace, fullKey)
	if err != nil {
		return "", s.worded("get", err)
	}
	return held.Spec.Owner, nil
}

// look returns nil if the lock is held, or else the error of reading it.
func (s *subject) look(ctx context.Context) error {
	GinkgoHelper()
	_, err := s.owner(ctx)
	return err
}

func (s *subject) expectHeldBy(ctx context.Context, owner string) {
	GinkgoHelper()
	Expect(s.owner(ctx)).To(Equal(owner))
}

func (s *subject) expectFree(ctx context.Context) {
	GinkgoHelper()
	expectRefusal(s.look(ctx), lock.ErrNotHeld)
}

// worded returns the error of an operation on the lock, whose outcome all backends must tell in the same words.
func (s *subject) worded(operation string, err error) error {
	GinkgoHelper()
	if errors.Is(err, lock.ErrUnavailable) {
		return err
	}
	for _, outcome := range []error{lock.ErrExpired, lock.ErrNotHeld, lock.ErrOwnerMismatch, lock.ErrStale} {
		if errors.Is(err, outcome) {
			Expect(err).To(MatchError(fmt.Sprintf("%s %s in namespace %s: %s", operation, fullKey, s.Namespace, outcome)))
			break
		}
	}
	return err
}

// expectRefusal checks the outcome, that the error contains no owner token, and that no outage is
// blamed for it: callers try again after that.
func expectRefusal(err, want error) {
	GinkgoHelper()
	Expect(err).To(MatchError(want))
	if !errors.Is(want, lock.ErrUnavailable) {
		Expect(err).NotTo(MatchError(lock.ErrUnavailable))
	}
	Expect(err.Error()).NotTo(ContainSubstring(secret))
	Expect(fmt.Sprintf("%+v", err)).NotTo(ContainSubstring(secret))
}

// expectHeldError checks that a refusal names the holder and the expiry, in the same words on every backend.
func (s *subject) expectHeldError(err error, holding *v1alpha1.Lock) {
	GinkgoHelper()
	expectRefusal(err, lock.ErrHeld)
	var held *lock.HeldError
	Expect(errors.As(err, &held)).To(BeTrue(), "%T wraps no HeldError", err)
	Expect(held.Key).To(Equal(holding.Spec.FullKey()))
	Expect(held.Holder).To(Equal(s.Holder))
	Expect(held.ExpireTime).To(BeTemporally("==", holding.Spec.ExpireTime.Time))
	Expect(err.Error()).To(Or(Equal(held.Error()), Equal(fmt.Sprintf("%s: %s", lock.ErrTimeout, held))))
}

func token(held *v1alpha1.Lock) int64 {
	GinkgoHelper()
	number, err := held.FencingToken()
	Expect(err).NotTo(HaveOccurred())
	return number
}

func (s *subject) now() time.Time {
	if s.Clock != nil {
		return s.Clock.Now()
	}
	return time.Now()
}

// pass returns when the clock has reached the time.
func (s *subject) pass(until time.Time) {
	GinkgoHelper()
	if s.Clock != nil {
		s.Clock.SetTime(until)
		return
	}
	Eventually(time.Now).WithTimeout(time.Until(until) + soon).WithPolling(poll).Should(BeTemporally(">=", until))
}

// expired returns a lock of alice that has expired.
func (s *subject) expired(ctx context.Context) *v1alpha1.Lock {
	GinkgoHelper()
	ended := s.acquired(ctx, by(alice))
	ended.Spec.ExpireTime = new(v1alpha1.NewTimestamp(s.expire(ctx, alice)))
	return ended
}

// expire has the owner renew its lock for a brief ttl, and returns when that has passed: the earliest time at which the lock
// may have ended. So no other request must be made before the lock expires.
func (s *subject) expire(ctx context.Context, owner string) time.Time {
	GinkgoHelper()
	earliest, latest := s.shorten(ctx, owner)
	s.pass(latest)
	return earliest
}

// shorten has the owner renew its lock for a brief ttl, and returns between which times that passes. They differ if the answer
// came after the lock's end, and so does not say when that was.
func (s *subject) shorten(ctx context.Context, owner string) (earliest, latest time.Time) {
	GinkgoHelper()
	asked := s.now()
	renewed, err := s.renew(ctx, owner, brief)
	if err != nil { // Which may be said in either way.
		Expect(err).To(Or(MatchError(lock.ErrExpired), MatchError(lock.ErrUnavailable)))
		return asked.Add(brief), s.now().Add(brief)
	}
	return renewed.Spec.ExpireTime.Time, renewed.Spec.ExpireTime.Time
}
