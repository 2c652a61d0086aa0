package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
)

// claim is what a caller shows of a lock that it wants to renew or release.
type claim struct {
	locks.Claim
	name  lockName
	token locktoken.Token
	// isOfLock says that the token was made for this lock.
	isOfLock bool
	// tags are those of If-Match. Empty means that the request has no such condition, or that any
	// version meets it.
	tags []string
}

// readClaim reads the lock token and the condition of a request. [call.limitToVersion] adds the condition
// to the claim, once the rest of the request is known to be valid.
func (c *call) readClaim(name lockName, found *mistakes) (*claim, error) {
	given := c.Request.Header.Values(locktoken.Header)
	if len(given) != 1 || given[0] == "" {
		return nil, problems.New(problems.TokenRequired, "The header "+locktoken.Header+" must have the lock_token of the answer to POST")
	}
	shown := &claim{name: name}
	shown.token, shown.isOfLock = locktoken.Parse(given[0], c.Caller.Namespace, name.fullKey())
	if shown.isOfLock {
		shown.Claim = locks.TokenClaim(shown.token)
	}
	if values := c.Request.Header.Values(ifMatchHeader); len(values) > 0 {
		tags, ok := parseEntityTags(values)
		if !ok {
			found.Add(FieldError{In: inHeader, Field: ifMatchHeader, Detail: `must be * or entity tags in quotes`})
		}
		shown.tags = tags.tags
	}
	return shown, nil
}

// noVersion is the resourceVersion of no lock.
const noVersion = "none"

// limitToVersion limits the claim to the resourceVersion that If-Match names. The write can have only
// one; of several tags it is the one that the lock has.
func (c *call) limitToVersion(shown *claim) error {
	if len(shown.tags) == 0 {
		return nil
	}
	chosen := shown.tags[0]
	if len(shown.tags) > 1 {
		current, err := c.config.Locks.GetWithOwner(c.Request.Context(), &c.Caller, shown.name.fullKey())
		switch {
		case errors.Is(err, lock.ErrNotHeld):
		case err != nil:
			return err
		case slices.Contains(shown.tags, entityTag(current)):
			chosen = entityTag(current)
		}
	}
	shown.Claim = shown.WithVersion(cmp.Or(strings.Trim(chosen, `"`), noVersion))
	return nil
}

// explain returns what an error of a renewal or release means to the caller that shows the claim. A token
// that was made for the lock is of a grant that has ended, also if another caller holds the lock by now, unless it
// is that of the present grant and the caller has another identity.
func (c *call) explain(ctx context.Context, shown *claim, err error) error {
	ended := problems.New(problems.LockEnded, "The grant of this lock token has ended: it expired, was released, or was broken")
	switch {
	case !shown.isOfLock:
		return err
	case errors.Is(err, lock.ErrNotHeld):
		return ended
	case !errors.Is(err, lock.ErrOwnerMismatch):
		return err
	}
	current, readErr := c.config.Locks.GetWithOwner(ctx, &c.Caller, shown.name.fullKey())
	switch {
	case errors.Is(readErr, lock.ErrNotHeld):
		return ended
	case readErr != nil:
		return readErr
	}
	if locks.IsOfGrant(shown.token, current) {
		return err
	}
	return ended
}

// renew answers PUT.
func (c *call) renew() (*answer, error) {
	var found mistakes
	name := c.readName(&found)
	shown, err := c.readClaim(name, &found)
	if err != nil {
		return nil, err
	}
	ttl, connection, err := c.readRenewal(&found)
	if err != nil {
		return nil, err
	}
	shown.Claim = shown.TakenUpBy(connection)
	if err := c.limitToVersion(shown); err != nil {
		return nil, err
	}
	renewal, err := c.config.Locks.PrepareRenew(&c.Caller, name.fullKey(), shown.Claim, ttl)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	renewed, err := renewal.Renew(ctx)
	if err != nil {
		return nil, c.explain(ctx, shown, err)
	}
	c.granted = renewed
	return &answer{status: http.StatusOK, body: describe(renewed), etag: entityTag(renewed)}, nil
}

// readRenewal reads the rest of a request to renew. The error has all that was found.
func (c *call) readRenewal(found *mistakes) (ttl time.Duration, connection string, err error) {
	body, err := found.ReadBody(c.body)
	if err != nil {
		return 0, "", err
	}
	leastTTL, connection := c.ofHold()
	ttl = body.RequiredSeconds("ttl_seconds", leastTTL, c.config.Locks.MaxTTL())
	body.RefuseOthers()
	if !c.operation.isOfSet {
		c.query.checkFlag("hold", found)
	}
	c.query.refuseOthers(found)
	return ttl, connection, found.Problem()
}

// release answers DELETE.
func (c *call) release() (*answer, error) {
	var found mistakes
	name := c.readName(&found)
	c.query.checkFlag("force", &found)
	c.query.refuseOthers(&found)
	shown, err := c.readClaim(name, &found)
	if err != nil {
		return nil, err
	}
	if err := found.Problem(); err != nil {
		return nil, err
	}
	if err := c.limitToVersion(shown); err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	if err := c.config.Locks.Release(ctx, &c.Caller, name.fullKey(), shown.Claim); err != nil {
		return nil, c.explain(ctx, shown, err)
	}
	return &answer{status: http.StatusNoContent}, nil
}

// forceRelease answers DELETE with force=true.
func (c *call) forceRelease() (*answer, error) {
	var found mistakes
	name := c.readName(&found)
	reason, token := c.query.text("reason"), c.query.fencingToken(&found)
	c.query.refuseOthers(&found)
	c.refuseConditions("must not be given with force=true, which takes fencing_token as its condition", &found)
	forced, err := c.config.Locks.PrepareForceRelease(&c.Caller, name.fullKey(), reason)
	addInvalid(&found, err)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	forced.LimitToGrant(token)
	if err := forced.Release(c.Request.Context()); err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent}, nil
}
