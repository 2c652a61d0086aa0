package lock

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// Client acquires locks in one namespace. Safe for concurrent use.
type Client struct {
	backend   Backend
	namespace string
	defaults  settings
}

// NewClient returns a client for the locks of a namespace. The options are the defaults of its
// calls.
func NewClient(backend Backend, namespace string, options ...Option) *Client {
	defaults := settings{request: Request{Wait: WaitForever}, isRenewed: true, releaseTimeout: DefaultReleaseTimeout}
	for _, option := range options {
		option(&defaults)
	}
	return &Client{backend: backend, namespace: namespace, defaults: defaults}
}

// With returns a client of the same locks with more options as defaults of its calls. They override those of c.
func (c *Client) With(options ...Option) *Client {
	changed := *c
	for _, option := range options {
		option(&changed.defaults)
	}
	return &changed
}

// Namespace returns the namespace that the client acquires locks in.
func (c *Client) Namespace() string { return c.namespace }

// Acquire takes the lock of the key, waits for its holder if there is one, and renews it until
// [Held.Release]. The end of ctx ends the wait and [Held.Context], but never the lock. To bound the wait
// alone, use [WithWait]; after a ctx that was only to bound the wait, work under [Held.Bind].
//
// If it fails, the caller does not hold the lock. The error matches
//
//   - [ErrDoubleLock] if ctx descends from the context of a Held of this key, and [ErrLockOrder] as [WithOrderCheck] says,
//   - [ErrTimeout] if [WithWait] was given and the lock was held that long; it
//     wraps a [*HeldError] that names the holder and the time of expiry,
//   - [ErrInvalid], and for the key [ErrInvalidKey], if the request cannot be granted,
//   - [ErrRefused] if the cluster refuses it, as by a quota,
//   - [ErrUnavailable] if the service did not answer,
//   - [ErrNotHeld] if the lock ended between the grant and the return,
//   - the error of ctx if that ended first; it wraps an [*InterruptedError] with what is known of the
//     holder or of an outage. If the service stops answering just after it has granted the lock to a wait, Acquire
//     returns up to a second after the end of ctx, and the lock may stay for its ttl.
func (c *Client) Acquire(ctx context.Context, key string, options ...Option) (*Held, error) {
	settings, err := c.settings("Acquire", ofAcquire, key, options)
	if err != nil {
		return nil, err
	}
	return c.acquire(ctx, settings)
}

// TryAcquire is [Client.Acquire] without waiting: if the lock is held, the error matches [ErrHeld]
// and is, or wraps, a [*HeldError]. With [WithRetry] it repeats the request, which is neither fair
// nor free; to queue for a lock, use Acquire. [WithWait] among the options of the call is refused with
// [ErrInvalid], unless it is zero; that of the client does not count.
func (c *Client) TryAcquire(ctx context.Context, key string, options ...Option) (*Held, error) {
	settings, err := c.settings("TryAcquire", ofAcquire, key, append([]Option{WithWait(0)}, options...))
	if err != nil {
		return nil, err
	}
	if settings.request.Wait != 0 {
		return nil, &InvalidError{Problems: field.ErrorList{
			field.Invalid(field.NewPath("wait"), settings.request.Wait.String(), "must be zero: TryAcquire does not wait, Acquire does"),
		}}
	}
	return c.acquire(ctx, settings)
}

// FullKey returns the full key of the lock that [Client.Acquire] takes with these arguments. It refuses no option.
func (c *Client) FullKey(key string, options ...Option) v1alpha1.FullKey {
	settings, _ := c.settings("FullKey", ofAll, key, options)
	return settings.request.FullKey()
}

// settings returns the settings of one call of the method, or an error that names the options of the call that do not
// concern it.
func (c *Client) settings(method string, concerned optionSet, key string, options []Option) (settings, error) {
	settings := c.defaults
	settings.given = 0
	for _, option := range options {
		option(&settings)
	}
	settings.request.Key = key
	if settings.clock == nil {
		settings.clock = clock.RealClock{}
	}
	return settings, settings.given.without(concerned, method)
}

func (c *Client) acquire(ctx context.Context, settings settings) (*Held, error) {
	if err := c.checkContext(ctx, settings); err != nil {
		return nil, err
	}
	return c.take(ctx, settings)
}

// take acquires the lock, whatever locks the context carries.
func (c *Client) take(ctx context.Context, settings settings) (*Held, error) {
	key := settings.request.FullKey()
	if settings.request.TTL == 0 {
		settings.request.TTL = DefaultTTL
	}
	lock, sent, err := c.request(ctx, settings)
	if err != nil {
		return nil, err
	}
	held, err := c.hold(ctx, settings, lock, sent)
	if err == nil {
		return held, nil
	}
	// The caller is about to learn that it holds nothing. Its next acquire may have the owner token, too, when a late
	// release arrives.
	proof := Proof{Owner: lock.Spec.Owner}
	proof.FencingToken, _ = lock.FencingToken()
	within, reason := settings.releaseTimeout, failed("acquire", key, c.namespace, err)
	if ctx.Err() != nil {
		within, reason = min(within, maxLate), Interrupted(ctx, key, err)
	}
	_ = c.release(ctx, key, proof, within)
	return nil, reason
}

// maxLate is for how long a caller of Acquire whose context has ended is kept for the release of what it has got. It
// suffices for a new connection.
const maxLate = time.Second

// request asks for the lock, repeatedly if the settings say so. It also returns the time just
// before the successful request was sent.
func (c *Client) request(ctx context.Context, settings settings) (granted *v1alpha1.Lock, sent time.Time, err error) {
	began := settings.clock.Now()
	attempt := func(ctx context.Context) error {
		sent = settings.clock.Now()
		request := settings.request
		if request.Wait != WaitForever {
			request.Wait = max(0, request.Wait-sent.Sub(began))
		}
		granted, err = c.backend.Acquire(ctx, c.namespace, request)
		return err
	}
	if settings.retry == nil {
		return granted, sent, attempt(ctx)
	}
	retries := retries{RetryPolicy: settings.retry.withDefaults(), key: settings.request.FullKey(), clock: settings.clock, isWaiting: settings.request.Wait > 0}
	err = retries.run(ctx, attempt)
	return granted, sent, err
}

// hold returns the lock with a deadline that leaves the caller time to work.
func (c *Client) hold(ctx context.Context, settings settings, lock *v1alpha1.Lock, sent time.Time) (*Held, error) {
	held, err := newHeld(ctx, c, settings, lock, sent)
	if err != nil {
		return nil, err
	}
	// The grant may have been made long after the request. How long ago is unknown: another clock
	// stamped it.
	if now := settings.clock.Now(); now.Sub(sent) > held.ttl/3 || servertime.Jump(sent, now) > 0 {
		held.prolong(now, held.ttl) // until the renewal; the caller does not have the lock yet
		if err := held.renewWithin(ctx, held.ttl); err != nil {
			held.end(err)
			return nil, err
		}
	}
	held.start()
	return held, nil
}

// release ends the lock even if ctx has ended.
func (c *Client) release(ctx context.Context, key v1alpha1.FullKey, proof Proof, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return c.backend.Release(ctx, c.namespace, key, proof)
}
