package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"forrst.dev/lock-operator/lock"
)

const (
	// maxRecovery is how long after the faults every key must have been acquired. A replica
	// that was killed leaves grants behind for their ttl.
	maxRecovery = longTTL + 5*time.Second
	// maxTidying is how long after its expiry the object of a lock may remain: another replica
	// may have to become the leader before it reaps.
	maxTidying = 20 * time.Second
	// lively is both of a run that does not judge how fast things are, only that they happen.
	lively = 2 * time.Minute
	retry  = 50 * time.Millisecond
)

// awaitReady waits until all façades grant.
func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	known, _ := c.authenticated(0, &running{})
	return errors.Join(c.acquireOnEach(ctx, newCaller(0, c.addresses(), c.history, &running{}), "ready"), c.acquireOnEach(ctx, known, "ready"))
}

// acquireOnEach acquires and releases the key once on each replica.
func (c *cluster) acquireOnEach(ctx context.Context, client *caller, key string) error {
	defer client.http.CloseIdleConnections()
	for number := range c.replicas {
		for {
			got := client.do(context.WithoutCancel(ctx), operation{kind: acquire, replica: number, key: key, owner: lock.NewOwner(), ttl: maxShortTTL})
			if got.outcome == done {
				got.kind = release
				client.do(context.WithoutCancel(ctx), operation{kind: release, replica: number, key: key, owner: got.owner})
				break
			}
			if !pause(ctx, retry) {
				return fmt.Errorf("%s could not be acquired: %s", key, &got)
			}
		}
	}
	return nil
}

// checkLive checks that the replicas still run, that every key can be acquired, and that no
// object is left.
func (c *cluster) checkLive(ctx context.Context, options options) (violations []string) {
	for number, replica := range c.replicas {
		if !replica.isRunning() {
			violations = append(violations, fmt.Sprintf("live: replica %d has ended, see its log", number))
		}
	}
	if len(violations) > 0 {
		return violations
	}
	recovery, tidying := lively, lively
	if options.judgesLiveness {
		recovery, tidying = maxRecovery, maxTidying
	}
	recovering, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for _, key := range c.history.keys() {
		if err := c.acquireOnEach(recovering, newCaller(0, c.addresses(), c.history, &running{}), key); err != nil {
			violations = append(violations, fmt.Sprintf("live: %v", err))
		}
	}
	violations = append(violations, c.checkDeclared(recovering)...)
	if len(violations) > 0 {
		return violations
	}
	tidy, cancel := context.WithTimeout(ctx, tidying)
	defer cancel()
	for {
		left, err := c.locks(tidy)
		switch {
		case err == nil && left == 0:
			return nil
		case !pause(tidy, retry):
			return []string{fmt.Sprintf("live: %d locks are left beyond their ttl: %v", left, err)}
		}
	}
}

// awaitRest waits until no replica exceeds the bounds, or long enough to show that one does.
func (c *cluster) awaitRest(ctx context.Context, most figures) {
	ctx, cancel := context.WithTimeout(ctx, maxTidying)
	defer cancel()
	from := time.Now()
	for pause(ctx, retry) {
		isAtRest := true
		for _, replica := range c.replicas {
			isAtRest = isAtRest && replica.path.rests(from, most)
		}
		if isAtRest {
			return
		}
	}
}

// keys returns those that several clients used in the last round or later.
func (h *history) keys() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.operations[len(h.operations)-1].sent - roundLength
	found := map[string]bool{}
	for index := range h.operations {
		if op := &h.operations[index]; op.sent > last && !strings.Contains(op.key, "couple") {
			found[op.key] = true
		}
	}
	return sortedKeys(found)
}
