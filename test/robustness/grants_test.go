package robustness_test

import (
	"fmt"
	"math"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// never is later than every run.
const never time.Duration = math.MaxInt64

// grant is one acquisition in etcd's record, from the write that made it to the write
// that ended it.
type grant struct {
	key, owner string
	// token is the revision of the write that made it.
	token int64
	// from and to are when the journal learnt of its beginning and of its end.
	from, to time.Duration
	// renewals are the writes in between that moved its expireTime.
	renewals []renewal
	// made and last are the object after the first and the last of its writes.
	made, last *v1alpha1.Lock
}

// renewal is a write that gave a grant another expireTime.
type renewal struct {
	// seen is when the journal learnt of it, which may be long after the write if etcd was away.
	seen time.Duration
	// ttl is the time from its stamp to its expireTime: the ttl of the request.
	ttl time.Duration
}

// grantsOf divides the journal into grants, in the order of their first writes, and returns
// the writes that break a rule by themselves.
func grantsOf(writes []write) (grants []*grant, problems []string) {
	current := map[string]*grant{}
	for _, write := range writes {
		before := current[write.name]
		switch {
		case write.lock == nil:
			if before != nil {
				before.to = write.seen
			}
			delete(current, write.name)
		case before != nil && before.isIn(write.lock):
			problems = append(problems, before.amend(write)...)
		default:
			if before != nil {
				before.to = write.seen
			}
			if write.lock.Spec.FencingToken != nil {
				problems = append(problems, fmt.Sprintf("grants: the grant %d of %s carries the token of another", write.revision, write.name))
			}
			next := &grant{
				key: string(write.lock.Spec.FullKey()), owner: write.lock.Spec.Owner, token: write.revision,
				from: write.seen, to: never, made: write.lock, last: write.lock,
			}
			current[write.name] = next
			grants = append(grants, next)
		}
	}
	return grants, problems
}

// byToken returns the grants by their tokens.
func (r *record) byToken() map[int64]*grant {
	grants := map[int64]*grant{}
	for _, grant := range r.grants {
		grants[grant.token] = grant
	}
	return grants
}

// isIn reports whether the object still records the grant: two grants never share
// owner and acquireTime.
func (g *grant) isIn(lock *v1alpha1.Lock) bool {
	return lock.Spec.Owner == g.owner && lock.Spec.AcquireTime.Equal(g.made.Spec.AcquireTime)
}

// amend applies a write that is no grant.
func (g *grant) amend(write write) (problems []string) {
	spec := write.lock.Spec
	complain := func(what string) {
		problems = append(problems, fmt.Sprintf("renewals: write %d of %s, which is no grant, %s", write.revision, write.name, what))
	}
	if spec.FencingToken == nil || *spec.FencingToken != g.token {
		complain(fmt.Sprintf("does not record the token %d of the grant", g.token))
	}
	if spec.Holder != g.made.Spec.Holder {
		complain("changes the holder")
	}
	if !spec.ExpireTime.Equal(g.last.Spec.ExpireTime) {
		g.renewals = append(g.renewals, renewal{seen: write.seen, ttl: spec.ExpireTime.Sub(spec.RenewTime.Time)})
		// The stamps alone decide, so only the clock that stamped matters.
		if g.last.Spec.ExpireTime.Before(spec.RenewTime.Time) {
			complain("renews a lock that had expired")
		}
	}
	g.last = write.lock
	return problems
}
