package auditlog

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// refusalsPerSecond and refusalBurst bound the records of refusals that one actor gets for one
	// reason in one namespace: any user can cause them, at no cost.
	refusalsPerSecond, refusalBurst = 2, 50
	// tenantRefusalsPerSecond and tenantRefusalBurst bound those of one tenant, for any number of
	// service accounts and namespaces. Refused writes of guarded objects count by themselves, so
	// that a user without a right to locks cannot keep refusals of locks out.
	tenantRefusalsPerSecond, tenantRefusalBurst = 5, 200
	// allRefusalsPerSecond and allRefusalBurst bound those of all tenants through one path: names can be
	// invented in forged reviews. A tenant that has been known for establishedAfter has records besides,
	// of ownRefusalsPerSecond and ownRefusalBurst.
	allRefusalsPerSecond, allRefusalBurst = 50, 1000
	ownRefusalsPerSecond, ownRefusalBurst = 0.2, 10
	establishedAfter                      = time.Minute
	// tenantKept is how long a tenant stays known that causes no records.
	tenantKept = time.Hour
	// maxTenants and maxSources of one tenant bound the memory. What is beyond counts without its
	// actor.
	maxTenants = 1024
	maxSources = 64
)

// source is what omitted records have in common that count together.
type source struct {
	actor, client, namespace string
	event                    audit.Event
	reason                   audit.Reason
	via                      audit.Via
	cause                    audit.Cause
}

func sourceOf(record *audit.Record, cause audit.Cause) source {
	return source{
		actor: record.Actor, client: record.Client, namespace: record.Namespace,
		event: record.Event, reason: record.Reason, via: record.Via, cause: cause,
	}
}

// of returns the source without what tells the members of the tenant apart.
func (s source) of(all tenantKey) source {
	s.actor, s.client, s.namespace = all.actor, "", all.namespace
	return s
}

func (s source) compare(other source) int {
	return cmp.Or(cmp.Compare(s.actor, other.actor), cmp.Compare(s.client, other.client), cmp.Compare(s.namespace, other.namespace),
		cmp.Compare(s.event, other.event), cmp.Compare(s.reason, other.reason), cmp.Compare(s.via, other.via), cmp.Compare(s.cause, other.cause))
}

// omission counts the records of a source that were not written.
type omission struct {
	// limit bounds the refusals that have records of their own. Nil if the source is of another
	// cause.
	limit        *rate.Limiter
	count        int64
	since, until v1alpha1.Timestamp
}

// add counts omitted records, the first and last of which are of these times.
func (o *omission) add(count int64, since, until v1alpha1.Timestamp) {
	if o.count == 0 || since.Before(o.since.Time) {
		o.since = since
	}
	if o.count == 0 || o.until.Before(until.Time) {
		o.until = until
	}
	o.count += count
}

// tenant is one user, the service accounts of one namespace, the Jobs of one namespace, or all callers
// without an identity.
type tenant struct {
	limits map[audit.Event]*rate.Limiter
	// own bounds the refusals that do not count among those of all tenants.
	own         *rate.Limiter
	sources     map[source]*omission
	known, used time.Time
}

func newTenant(now time.Time) *tenant {
	return &tenant{
		limits: map[audit.Event]*rate.Limiter{}, own: rate.NewLimiter(ownRefusalsPerSecond, ownRefusalBurst),
		sources: map[source]*omission{}, known: now,
	}
}

func (t *tenant) isEstablished(now time.Time) bool { return now.Sub(t.known) >= establishedAfter }

// tenantKey identifies a tenant. Zero stands for all callers without an identity.
type tenantKey struct {
	// actor is a user, or the group of the service accounts of a namespace, of which each user who may
	// edit the namespace can make any number.
	actor string
	// namespace is that of Jobs, of which it is not known who made them. Empty for other tenants.
	namespace string
}

func tenantOf(record *audit.Record) tenantKey {
	if namespace, _, err := serviceaccount.SplitUsername(record.Actor); err == nil {
		return tenantKey{actor: serviceaccount.MakeNamespaceGroupName(namespace)}
	}
	if record.Actor == "" && record.Via == audit.Controller {
		return tenantKey{namespace: record.Namespace}
	}
	return tenantKey{actor: record.Actor}
}

// omissions decide which refusals have records of their own, and count all records that are not
// written, by actor. So an actor that is refused all the time uses up its own share, any number of new
// ones uses up the share of new ones, and nothing vanishes unseen. The memory is bounded. Safe for
// concurrent use.
type omissions struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	tenants map[tenantKey]*tenant
	// all bounds the refusals through each path.
	all map[audit.Via]*rate.Limiter
	// others counts what belongs to tenants that had to make room, without their names.
	others map[source]*omission
}

func newOmissions(now clock.PassiveClock) *omissions {
	return &omissions{clock: now, tenants: map[tenantKey]*tenant{}, all: map[audit.Via]*rate.Limiter{}, others: map[source]*omission{}}
}

func isRefusal(event audit.Event) bool { return event == audit.Refused || event == audit.WriteRefused }

// admit reports whether a refusal has a record of its own. If not, it is counted. That a caller has
// used up its rate is never recorded one by one: it would use up the records of other refusals.
func (o *omissions) admit(record *audit.Record) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock.Now()
	of := o.tenant(tenantOf(record), now)
	found := of.source(sourceOf(record, audit.TooManyRefusals), tenantOf(record))
	if found.limit == nil {
		found.limit = rate.NewLimiter(refusalsPerSecond, refusalBurst)
	}
	if record.Reason != audit.RateLimited && found.limit.AllowN(now, 1) && of.limit(record.Event).AllowN(now, 1) &&
		(of.isEstablished(now) && of.own.AllowN(now, 1) || o.limit(record.Via).AllowN(now, 1)) {
		return true
	}
	found.add(1, record.Time, record.Time)
	return false
}

// omit counts a record that is not written.
func (o *omissions) omit(record *audit.Record, cause audit.Cause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := record.Time
	if at.IsZero() {
		at = v1alpha1.NewTimestamp(o.clock.Now())
	}
	of := tenantOf(record)
	o.tenant(of, o.clock.Now()).source(sourceOf(record, cause), of).add(1, at, at)
}

// limit needs the mutex.
func (o *omissions) limit(via audit.Via) *rate.Limiter {
	if o.all[via] == nil {
		o.all[via] = rate.NewLimiter(allRefusalsPerSecond, allRefusalBurst)
	}
	return o.all[via]
}

// tenant returns that of the key. It needs the mutex.
func (o *omissions) tenant(of tenantKey, now time.Time) *tenant {
	found := o.tenants[of]
	if found == nil {
		if len(o.tenants) >= maxTenants {
			o.evict(now)
		}
		found = newTenant(now)
		o.tenants[of] = found
	}
	found.used = now
	return found
}

// evict forgets the tenant that was not seen for the longest time, of the new ones if there are any, and
// keeps its counts. It needs the mutex.
func (o *omissions) evict(now time.Time) {
	var of tenantKey
	var oldest *tenant
	for each, candidate := range o.tenants {
		if oldest == nil || candidate.isBefore(oldest, now) {
			of, oldest = each, candidate
		}
	}
	for from, counted := range oldest.sources {
		if counted.count == 0 {
			continue
		}
		nameless := from.of(tenantKey{})
		if o.others[nameless] == nil {
			o.others[nameless] = &omission{}
		}
		o.others[nameless].add(counted.count, counted.since, counted.until)
	}
	delete(o.tenants, of)
}

// isBefore reports whether this tenant is forgotten before the other one.
func (t *tenant) isBefore(other *tenant, now time.Time) bool {
	if isEstablished := t.isEstablished(now); isEstablished != other.isEstablished(now) {
		return !isEstablished
	}
	return t.used.Before(other.used)
}

// source returns the count of a source of the tenant with the key.
func (t *tenant) source(of source, key tenantKey) *omission {
	if found := t.sources[of]; found != nil {
		return found
	}
	if len(t.sources) >= maxSources {
		of = of.of(key)
	}
	found := t.sources[of]
	if found == nil {
		found = &omission{}
		t.sources[of] = found
	}
	return found
}

func (t *tenant) limit(event audit.Event) *rate.Limiter {
	if t.limits[event] == nil {
		t.limits[event] = rate.NewLimiter(tenantRefusalsPerSecond, tenantRefusalBurst)
	}
	return t.limits[event]
}

// drain returns a record of each count, and begins to count anew. What has not been used for so long
// that it says nothing any more is forgotten.
func (o *omissions) drain() []audit.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock.Now()
	records := drain(o.others, now)
	for of, each := range o.tenants {
		records = append(records, drain(each.sources, now)...)
		if now.Sub(each.used) >= tenantKept {
			delete(o.tenants, of)
		}
	}
	slices.SortFunc(records, func(a, b audit.Record) int {
		return sourceOfOmitted(&a).compare(sourceOfOmitted(&b))
	})
	return records
}

func drain(sources map[source]*omission, now time.Time) (records []audit.Record) {
	for from, counted := range sources {
		if counted.count > 0 {
			records = append(records, audit.Record{
				Schema: audit.Schema, Time: counted.until, Event: audit.Omitted, Reason: from.reason, Via: from.via,
				Actor: from.actor, Namespace: from.namespace, Client: from.client,
				OmittedEvent: from.event, Cause: from.cause, Count: counted.count, Since: counted.since,
			})
			counted.count = 0
		}
		if counted.limit == nil || isUnused(counted.limit, now) {
			delete(sources, from)
		}
	}
	return records
}

func sourceOfOmitted(record *audit.Record) source {
	from := sourceOf(record, record.Cause)
	from.event = record.OmittedEvent
	return from
}

// isUnused reports whether a limit is as it was made.
func isUnused(limit *rate.Limiter, now time.Time) bool {
	return limit.TokensAt(now) >= float64(limit.Burst())
}

// class is a kind of actors.
type class string

const (
	serviceAccounts class = "service_account"
	users           class = "user"
	// systemUsers are Kubernetes itself, and other users whose names it reserves.
	systemUsers class = "system"
	// unknownActors are callers without an identity, and the operator where it acts on its own.
	unknownActors class = "unknown"
)

var classes = [...]class{serviceAccounts, users, systemUsers, unknownActors}

func classOf(actor string) class {
	switch {
	case actor == "":
		return unknownActors
	case strings.HasPrefix(actor, serviceaccount.ServiceAccountUsernamePrefix):
		return serviceAccounts
	case strings.HasPrefix(actor, "system:"):
		return systemUsers
	default:
		return users
	}
}
