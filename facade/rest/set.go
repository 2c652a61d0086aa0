package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/strictjson"
	"forrst.dev/lock-operator/lock/together"
)

// maxSetPath bounds the path of a set, which has all keys, to what clients and proxies pass on.
const maxSetPath = 4 << 10

// setAcquisition is a checked request for several locks.
type setAcquisition struct {
	*locks.Set
	// first is the first lock. It is known also if there are mistakes.
	first  lockName
	secret locktoken.Secret
	waits  bool
	// isRepeatable says that the caller has sent an Idempotency-Key.
	isRepeatable bool
}

// readSet reads the rest of a request for several locks, and checks all of it.
func (c *call) readSet(body *strictjson.Members, request lock.Request, found *mistakes) {
	keys, isStrict := body.Texts("keys"), body.IsText("together", "strict")
	idempotencyKey := c.readRest(body, found)
	requested := &setAcquisition{waits: request.Wait > 0, isRepeatable: idempotencyKey != ""}
	ordered, told := together.Order(request.Acquisition, keys)
	if len(ordered) > 0 {
		requested.first = newLockName(ordered[0].Key, ordered[0].Function)
	}
	var sorted, fullKeys []string
	for _, each := range ordered {
		sorted, fullKeys = append(sorted, each.Key), append(fullKeys, string(each.FullKey()))
	}
	if len(told) == 0 && len(wire.SetPath(c.Caller.Namespace, sorted, request.Function)) > maxSetPath {
		body.Fail("keys", "must take at most "+strconv.Itoa(maxSetPath)+" bytes in the path of the answer")
	}
	requested.secret = c.secretOf(request, idempotencyKey, fullKeys...)
	c.requestedSet = requested
	var err error
	requested.Set, err = c.config.Locks.PrepareSecretSet(&c.Caller, request, keys, requested.secret, isStrict)
	addInvalid(found, err)
}

// firstOfSet returns the first lock that a request for several is about, or none if it names none that can be.
func (c *call) firstOfSet() lockName {
	if c.operation == acquireSet {
		if c.requestedSet == nil { // The body could not be read.
			return lockName{}
		}
		return c.requestedSet.first
	}
	names, _ := c.namesOfQuery()
	if len(names) == 0 {
		return lockName{}
	}
	return names[0]
}

// names are the locks of the set, in their order.
func (s *setAcquisition) names() []lockName {
	names := make([]lockName, len(s.Keys()))
	for number, key := range s.Keys() {
		names[number] = newLockName(key, s.Function())
	}
	return names
}

// namesOfQuery returns the locks that the query names, in the order of their full keys.
func (c *call) namesOfQuery() ([]lockName, field.ErrorList) {
	function := c.query.text("function")
	scope := newLockName("", function).scope
	ordered, told := together.Order(rules.Acquisition{Scope: scope, Function: function}, c.query.all(keyPart))
	names := make([]lockName, len(ordered))
	for number, each := range ordered {
		names[number] = newLockName(each.Key, function)
	}
	return names, told
}

// authorizeSet returns nil if the caller may do the verb on each of the locks.
func (c *call) authorizeSet(verb string, names []lockName) error {
	for _, name := range names {
		if err := c.config.Access.Authorize(c.Request.Context(), &c.Caller, verb, name.fullKey); err != nil {
			c.failed = name
			return err
		}
	}
	return nil
}

// acquireSet answers POST.
func (c *call) acquireSet() (*answer, error) {
	requested := c.requestedSet
	if err := c.authorizeSet(access.VerbCreate, requested.names()[1:]); err != nil {
		return nil, err
	}
	if requested.Priority() > 0 {
		if err := c.authorizeSet(access.VerbPrioritize, requested.names()); err != nil {
			return nil, err
		}
	}
	granted, err := c.acquireOrFindSet(requested)
	if err != nil {
		return nil, c.explainSet(err)
	}
	token := locktoken.SetToken{Secret: requested.secret}
	for _, each := range granted {
		number, err := each.FencingToken()
		if err != nil {
			return nil, err
		}
		token.FencingTokens = append(token.FencingTokens, number)
	}
	described := c.describeSet(granted)
	described.LockToken = token.Text(c.Caller.Namespace, requested.FullKeys())
	return &answer{status: http.StatusCreated, body: described, location: wire.SetPath(c.Caller.Namespace, requested.Keys(), requested.Function())}, nil
}

// describeSet returns locks as the caller is told them.
func (c *call) describeSet(held []*v1alpha1.Lock) *wire.Set {
	last, first := locks.Outermost(held)
	described := &wire.Set{ExpiresAt: formatStamp(first.Spec.ExpireTime)}
	if number, err := last.FencingToken(); err == nil {
		described.FencingToken, c.granted = number, last
	}
	for _, each := range held {
		described.Locks = append(described.Locks, describe(each))
	}
	return described
}

// acquireOrFindSet acquires the locks, or finds the grants that another call of the same request has made. Only a whole
// set is found: that of a call which goes on is none yet.
func (c *call) acquireOrFindSet(requested *setAcquisition) ([]*v1alpha1.Lock, error) {
	ctx := c.Request.Context()
	if requested.isRepeatable && requested.waits {
		if found, err := c.findSet(ctx, requested); !isNotOwn(err) {
			return found, err
		}
	}
	granted, err := requested.Acquire(ctx, c.operation.name)
	if err == nil {
		c.undo = func() { requested.TakeBack(ctx, c.operation.name, granted) }
		return granted, nil
	}
	if requested.isRepeatable && (isNotOwn(err) || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable)) {
		found, lookErr := c.findSet(ctx, requested)
		switch {
		case lookErr == nil:
			return found, nil
		case !isNotOwn(lookErr) && !errors.Is(err, lock.ErrUnavailable): // After that, a lock may be left, which must be told.
			return nil, lookErr
		}
	}
	return nil, err
}

// findSet returns the locks, renewed, if all are held by the secret of the request; see [call.findOwn]. All are read
// before the first is renewed: so each grant stands when the last one has been made.
func (c *call) findSet(ctx context.Context, requested *setAcquisition) ([]*v1alpha1.Lock, error) {
	keys := requested.FullKeys()
	found := make([]*v1alpha1.Lock, len(keys))
	for number, key := range keys {
		if err := c.Caller.Permit.Pay(ctx); err != nil { // The look is a read of its own.
			return nil, err
		}
		current, err := c.config.Locks.GetWithOwner(ctx, &c.Caller, key)
		switch {
		case err != nil:
			return nil, err
		case !locks.IsOwner(requested.secret, current.Spec.Owner):
			return nil, lock.ErrOwnerMismatch
		}
		found[number] = current
	}
	for number, current := range found {
		fencing, err := current.FencingToken()
		if err != nil {
			return nil, lock.ErrOwnerMismatch // It is being deleted.
		}
		claim := locks.TokenClaim(locktoken.Token{Secret: requested.secret, FencingToken: fencing})
		renewal, err := c.config.Locks.PrepareRenew(&c.Caller, keys[number], claim, requested.TTL())
		if err != nil {
			return nil, err
		}
		renewed, err := renewal.Renew(ctx)
		if err != nil { // Those that are renewed may be those of another call of the request, so they are left.
			err = fmt.Errorf("%w: renew what was found: %s", lock.ErrUnavailable, err.Error())
			return nil, &locks.LockError{Scope: current.Spec.Scope, Function: current.Spec.Function, Key: current.Spec.Key, Err: err}
		}
		found[number] = renewed
	}
	return found, nil
}

// explainSet notes at which lock a request for several has failed, and returns what the error means to the caller.
func (c *call) explainSet(err error) error {
	failed, ok := errors.AsType[*locks.LockError](err)
	if !ok {
		return err
	}
	c.failed = newLockName(failed.Key, failed.Function)
	c.acquired = c.failed
	if isNotOwn(err) {
		return problems.New(problems.LockEnded, "The lock has ended before all others were acquired: it expired or was broken; none is held now")
	}
	return err
}

// shownSet is what a caller shows of locks that it wants to renew or release: a claim to each.
type shownSet []*claim

// readShownSet reads which locks a request names, and the token of their grants.
func (c *call) readShownSet(found *mistakes) (shownSet, error) {
	c.checkFunction(found)
	names, told := c.namesOfQuery()
	for _, each := range told {
		mistake := fieldErrorOf(each)
		mistake.In, mistake.Field = inQuery, keyPart
		found.Add(mistake)
	}
	c.query.refuseOthers(found)
	given := c.Request.Header.Values(locktoken.Header)
	if len(given) != 1 || given[0] == "" {
		return nil, problems.New(problems.TokenRequired, "The header "+locktoken.Header+" must have the lock_token of the answer to POST")
	}
	if len(c.Request.Header.Values(ifMatchHeader)) > 0 {
		found.Add(FieldError{In: inHeader, Field: ifMatchHeader, Detail: "must not be given with several locks"})
	}
	keys := make([]v1alpha1.FullKey, len(names))
	for number, name := range names {
		keys[number] = name.fullKey()
	}
	token, isOfLocks := locktoken.ParseSet(given[0], c.Caller.Namespace, keys)
	shown := make(shownSet, len(names))
	for number, name := range names {
		shown[number] = &claim{name: name, isOfLock: isOfLocks}
		if isOfLocks {
			shown[number].token = token.Grant(number)
			shown[number].Claim = locks.TokenClaim(shown[number].token)
		}
	}
	return shown, nil
}

// ofEach does the same with each lock at once, after the caller has paid for it, and may do it. The error is that of a lock
// whose grant has not ended, if there is one: the others need nothing more.
func (c *call) ofEach(shown shownSet, do func(ctx context.Context, number int) error) error {
	ctx := c.Request.Context()
	for _, each := range shown[1:] { // The call has begun with the first one.
		if err := c.authorizeSet(access.VerbCreate, []lockName{each.name}); err != nil {
			return err
		}
		if err := c.Caller.Permit.Pay(ctx); err != nil {
			return err
		}
	}
	failures := locks.AtOnce(len(shown), func(number int) error {
		if err := do(ctx, number); err != nil {
			return c.explain(ctx, shown[number], err)
		}
		return nil
	})
	chosen := -1
	for number, err := range failures {
		if err != nil && (chosen < 0 || isEnded(failures[chosen]) && !isEnded(err)) {
			chosen = number
		}
	}
	if chosen < 0 {
		return nil
	}
	c.failed = shown[chosen].name
	return failures[chosen]
}

// isEnded reports whether an error says that the grant has ended.
func isEnded(err error) bool {
	problem, ok := errors.AsType[*problems.Error](err)
	return ok && problem.Kind == problems.LockEnded
}

// renewSet answers PUT.
func (c *call) renewSet() (*answer, error) {
	var found mistakes
	shown, err := c.readShownSet(&found)
	if err != nil {
		return nil, err
	}
	ttl, _, err := c.readRenewal(&found)
	if err != nil {
		return nil, err
	}
	renewed := make([]*v1alpha1.Lock, len(shown))
	err = c.ofEach(shown, func(ctx context.Context, number int) error {
		renewal, err := c.config.Locks.PrepareRenew(&c.Caller, shown[number].name.fullKey(), shown[number].Claim, ttl)
		if err == nil {
			renewed[number], err = renewal.Renew(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, body: c.describeSet(renewed)}, nil
}

// releaseSet answers DELETE.
func (c *call) releaseSet() (*answer, error) {
	var found mistakes
	shown, err := c.readShownSet(&found)
	if err != nil {
		return nil, err
	}
	if err := found.Problem(); err != nil {
		return nil, err
	}
	err = c.ofEach(shown, func(ctx context.Context, number int) error {
		return c.config.Locks.Release(ctx, &c.Caller, shown[number].name.fullKey(), shown[number].Claim)
	})
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent}, nil
}
