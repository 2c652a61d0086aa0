package rest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
)

const (
	maxLimit     = 500
	defaultLimit = 100
)

// get answers GET of a lock.
func (c *call) get() (*answer, error) {
	var found mistakes
	name := c.readName(&found)
	c.checkWatch(&found)
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	current, err := c.config.Locks.Get(c.Request.Context(), &c.Caller, name.fullKey())
	if err != nil {
		return nil, err
	}
	return c.represent(describe(current), entityTag(current)), nil
}

// list answers GET of the locks of a namespace.
func (c *call) list() (*answer, error) {
	var found mistakes
	request := lock.PageRequest{
		Holder:   c.query.text("holder"),
		Prefix:   c.query.prefix(&found),
		Limit:    c.query.number("limit", 1, maxLimit, defaultLimit, &found),
		Continue: c.query.text("continue"),
	}
	c.checkWatch(&found)
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	page, err := c.config.Locks.ListPage(c.Request.Context(), &c.Caller, request)
	if err != nil {
		return nil, err
	}
	listed := wire.Locks{Locks: make([]wire.Lock, 0, len(page.Locks)), Continue: page.Continue}
	for index := range page.Locks {
		listed.Locks = append(listed.Locks, describe(&page.Locks[index]))
	}
	body := encode(listed)
	// Until it is sent, which the caller can delay. It is encoded once more.
	if err := c.Body.Take(2 * int64(len(body))); err != nil {
		return nil, err
	}
	hash := sha256.Sum256(body)
	return c.represent(json.RawMessage(body), `"`+base64.RawURLEncoding.EncodeToString(hash[:16])+`"`), nil
}

// checkWatch judges what only GET has.
func (c *call) checkWatch(found *mistakes) {
	if c.Request.Method == http.MethodGet {
		c.query.checkFlag("watch", found)
		c.readLastEventID(found)
	}
}

// represent answers with what a resource is, unless the caller has it already.
func (c *call) represent(body any, tag string) *answer {
	if c.isNotModified(tag) {
		return &answer{status: http.StatusNotModified, etag: tag}
	}
	return &answer{status: http.StatusOK, body: body, etag: tag}
}
