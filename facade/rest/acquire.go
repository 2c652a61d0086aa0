package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/ptr"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/strictjson"
)

// acquisition is a checked request for a lock.
type acquisition struct {
	locks.Acquisition
	secret locktoken.Secret
	wait   time.Duration
	// isRepeatable says that the caller has sent an Idempotency-Key.
	isRepeatable bool
	// isSecond says that the lock was free after the first try, which had found it held.
	isSecond bool
}

// acquire answers POST.
func (c *call) acquire() (*answer, error) {
	granted, err := c.acquireRequested()
	return c.answerGranted(c.requested, granted, err)
}

// acquireRequested acquires the lock that is asked for, if the caller may have its priority.
func (c *call) acquireRequested() (*v1alpha1.Lock, error) {
	if c.requested.Priority() > 0 {
		if err := c.config.Access.Authorize(c.Request.Context(), &c.Caller, access.VerbPrioritize, c.requested.FullKey); err != nil {
			return nil, err
		}
	}
	return c.acquireOrFind(c.requested)
}

// answerGranted answers a call that has the lock, unless it has failed.
func (c *call) answerGranted(requested *acquisition, granted *v1alpha1.Lock, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	c.granted = granted
	token := locktoken.Token{Secret: requested.secret}
	if token.FencingToken, err = granted.FencingToken(); err != nil {
		return nil, err
	}
	described := describe(granted)
	described.LockToken = token.Text(granted.Namespace, granted.Spec.FullKey())
	return &answer{
		status: http.StatusCreated, body: described, etag: entityTag(granted),
		location: wire.LockPath(granted.Namespace, described.Key, described.Function),
	}, nil
}

// acquireOrFind acquires the lock, or finds the grant that another call of the same request has made. That may be
// waiting still: all of them wait as one, and the lock that one gets ends the waits of the others. A stack keeps the
// frames of calls that wait, so what comes before and after is not a part of it.
func (c *call) acquireOrFind(requested *acquisition) (*v1alpha1.Lock, error) {
	if requested.isRepeatable && requested.wait > 0 {
		if granted, err := c.lookBefore(requested); !isNotOwn(err) {
			return granted, err
		}
	}
	granted, err := requested.Acquire(c.Request.Context(), c.operation.name)
	return c.afterAcquire(requested, granted, err)
}

// lookBefore looks for a grant before the call waits.
func (c *call) lookBefore(requested *acquisition) (*v1alpha1.Lock, error) {
	// The look is a read of its own.
	if err := c.Caller.Permit.Pay(c.Request.Context()); err != nil {
		return nil, err
	}
	return c.findOwn(c.Request.Context(), requested)
}

// afterAcquire looks for the grant of another call if there is one. If the answer cannot be sent, a lock that
// was acquired is taken back.
func (c *call) afterAcquire(requested *acquisition, granted *v1alpha1.Lock, err error) (*v1alpha1.Lock, error) {
	ctx := c.Request.Context()
	if err == nil {
		c.undo = func() { c.config.Locks.TakeBack(ctx, c.operation.name, &c.Caller, granted) }
		return granted, nil
	}
	isElsewhere := errors.Is(err, lock.ErrFoundElsewhere)
	if !requested.isRepeatable || !isElsewhere && !errors.Is(err, lock.ErrHeld) {
		return nil, err
	}
	found, lookErr := c.findOwn(ctx, requested)
	switch {
	case !isNotOwn(lookErr):
		return found, lookErr
	case isElsewhere:
		return nil, errRepeatedEnded()
	case requested.wait == 0 && !requested.isSecond && errors.Is(lookErr, lock.ErrNotHeld):
		// What held the lock may have been the grant of this request, which must not be told that another one holds it.
		requested.isSecond = true
		granted, err = requested.Acquire(ctx, c.operation.name)
		return c.afterAcquire(requested, granted, err)
	}
	return nil, err
}

// isNotOwn reports whether a look has found no grant of the request.
func isNotOwn(err error) bool {
	return errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)
}

// errRepeatedEnded answers a request that has found its grant, which has ended by then.
func errRepeatedEnded() error {
	return problems.New(problems.LockEnded, "The grant of this Idempotency-Key has ended; to acquire the lock anew, send another key")
}

// findOwn returns the lock, renewed, if it is held by the secret of the request. A grant that was found by reading counts
// only from its renewal on: the service ends a grant whose caller it takes to have gone (docs/design.md, section 8.1). The
// error is [lock.ErrNotHeld] for a free lock, and [lock.ErrOwnerMismatch] for one that another one holds or that is ending.
func (c *call) findOwn(ctx context.Context, requested *acquisition) (*v1alpha1.Lock, error) {
	key := requested.FullKey()
	current, err := c.config.Locks.GetWithOwner(ctx, &c.Caller, key)
	if err != nil {
		return nil, err
	}
	if !locks.IsOwner(requested.secret, current.Spec.Owner) {
		return nil, lock.ErrOwnerMismatch
	}
	fencing, err := current.FencingToken()
	if err != nil {
		return nil, lock.ErrOwnerMismatch // It is being deleted.
	}
	claim := locks.TokenClaim(locktoken.Token{Secret: requested.secret, FencingToken: fencing}).TakenUpBy(requested.Connection())
	renewal, err := c.config.Locks.PrepareRenew(&c.Caller, key, claim, requested.TTL())
	if err != nil {
		return nil, err
	}
	renewed, err := renewal.Renew(ctx)
	if errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch) {
		return nil, errRepeatedEnded()
	}
	return renewed, err
}

// readAcquisition reads and checks the request, which does not need its body any more, unless there are mistakes: they have
// parts of it. It returns how long the call may wait, which is told at once what is wrong.
func (c *call) readAcquisition() (wait time.Duration, err error) {
	defer func() {
		c.body = nil
		if err == nil {
			c.Body.Forget()
		} else {
			wait = 0
		}
	}()
	var found mistakes
	body, err := found.ReadBody(c.body)
	if err != nil {
		return 0, err
	}
	function := body.Text("function")
	if function == "" && body.Raw("function") != nil && len(found) == 0 {
		body.Fail("function", "must not be empty")
	}
	name := newLockName(c.Request.PathValue(keyPart), function)
	leastTTL, connection := c.ofHold()
	request := lock.Request{Acquisition: rules.Acquisition{
		Connection: connection,
		Scope:      name.scope, Function: name.function, Key: name.key,
		TTL:          body.RequiredSeconds("ttl_seconds", leastTTL, c.config.Locks.MaxTTL()),
		Reason:       body.Text("reason"),
		HolderRef:    readHolderRef(&body),
		ReleaseDelay: body.Seconds("release_delay_seconds", 0, v1alpha1.MaxReleaseDelay),
	}}
	request.Priority = body.Integer("priority")
	request.Wait = body.Seconds("wait_seconds", 0, c.config.MaxWait)
	if c.operation == acquireSet {
		c.readSet(&body, request, &found)
	} else {
		c.acquired = name
		c.readSingle(&body, request, &found)
	}
	return request.Wait, found.Problem()
}

// readSingle reads the rest of a request for one lock, and checks all of it.
func (c *call) readSingle(body *strictjson.Members, request lock.Request, found *mistakes) {
	idempotencyKey := c.readRest(body, found)
	requested := &acquisition{wait: request.Wait, isRepeatable: idempotencyKey != ""}
	c.requested = requested
	requested.secret = c.secretOf(request, idempotencyKey, string(request.FullKey()))
	var err error
	requested.Acquisition, err = c.config.Locks.PrepareSecret(&c.Caller, request, requested.secret, true)
	addInvalid(found, err)
}

// readRest reads what is left of a request when its members have been read. It returns its Idempotency-Key, or "".
func (c *call) readRest(body *strictjson.Members, found *mistakes) string {
	body.RefuseOthers()
	if !c.operation.isOfSet {
		c.query.checkFlag("hold", found)
	}
	c.query.refuseOthers(found)
	c.refuseConditions("must not be given to acquire a lock, which is only granted if it is free; renew it with PUT", found)
	return c.readIdempotencyKey(found)
}

// secretOf returns the secret of a request, which is always the same for one that may be repeated.
func (c *call) secretOf(request lock.Request, idempotencyKey string, keys ...string) locktoken.Secret {
	if idempotencyKey == "" {
		return locktoken.NewSecret()
	}
	// Two requests that differ are not one that was repeated, whatever their keys.
	parts := append([]string{c.operation.name, c.Caller.Holder(), c.Caller.Namespace}, keys...)
	return locktoken.DeriveSecret(append(parts, idempotencyKey, request.TTL.String(), request.ReleaseDelay.String(), request.Reason,
		fmt.Sprintf("%+v", ptr.Deref(request.HolderRef, v1alpha1.HolderReference{})))...)
}

const (
	// minIdempotencyKey keeps two programs of one user from choosing the same key by chance, and keys
	// from being guessed where callers are not authenticated.
	minIdempotencyKey = 16
	maxIdempotencyKey = 255
)

// readIdempotencyKey returns the key of a request that may be repeated, empty if there is none.
func (c *call) readIdempotencyKey(found *mistakes) string {
	given := c.Request.Header.Values(idempotencyKeyHeader)
	if len(given) == 0 {
		return ""
	}
	isVisible := true
	for _, char := range []byte(given[0]) {
		isVisible = isVisible && char > ' ' && char <= '~'
	}
	if len(given) > 1 || !isVisible || len(given[0]) < minIdempotencyKey || len(given[0]) > maxIdempotencyKey {
		// The key may be a secret.
		found.Add(FieldError{In: inHeader, Field: idempotencyKeyHeader, Detail: "must be 16 to 255 visible ASCII characters, given once", MaxLength: maxIdempotencyKey})
		return ""
	}
	return given[0]
}
