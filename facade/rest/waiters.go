package rest

import (
	"encoding/json"
	"net/http"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
)

// waiters answers GET of those that wait for a lock, or for any of a namespace.
func (c *call) waiters() (*answer, error) {
	var found mistakes
	var key v1alpha1.FullKey
	if c.Request.PathValue(keyPart) != "" {
		name := c.readName(&found)
		key = name.fullKey()
	}
	limit := c.query.number("limit", 1, maxLimit, defaultLimit, &found)
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	waiting, more, err := c.config.Locks.Waiters(c.Request.Context(), &c.Caller, key, limit)
	if err != nil {
		return nil, err
	}
	listed := wire.Waiters{Waiters: make([]wire.Waiter, 0, len(waiting)), More: more}
	for index := range waiting {
		listed.Waiters = append(listed.Waiters, describeWaiter(&waiting[index]))
	}
	body := encode(listed)
	// Until it is sent, which the caller can delay. It is encoded once more.
	if err := c.Body.Take(2 * int64(len(body))); err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, body: json.RawMessage(body)}, nil
}

func describeWaiter(waiter *lock.Waiter) wire.Waiter {
	described := wire.Waiter{
		Key: waiter.Key, Function: waiter.Function, Place: waiter.Place, Priority: waiter.Priority,
		Holder: waiter.Holder, Reason: waiter.Reason, Door: waiter.Door, Since: problems.FormatTime(waiter.Since),
	}
	if ref := waiter.HolderRef; ref != nil {
		described.HolderRef = &wire.HolderRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
	}
	if !waiter.Until.IsZero() {
		described.Until = problems.FormatTime(waiter.Until)
	}
	return described
}
