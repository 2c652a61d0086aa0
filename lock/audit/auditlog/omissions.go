package auditlog

import (
	"cmp"
	"slices"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// refusalsPerSecond and refusalBurst bound the records of refusals of one actor for one reason: any user
	// can cause them, at no cost.
	refusalsPerSecond, refusalBurst = 2, 50
	// maxBuckets bounds the memory of the rates. The one that was not used for the longest time is forgotten first.
	maxBuckets = 4096
	// maxCounts bounds the counts between two summaries. What is beyond counts without its actor.
	maxCounts = 4096
)

// source is what records have in common that share a rate, and count together if they are omitted. Where the actor
// is not known, it is the network of the caller, or the namespace of the Job, that stands for it.
type source struct {
	actor, client, namespace string
	event                    audit.Event
	reason                   audit.Reason
	via                      audit.Via
}

func sourceOf(record *audit.Record) source {
	of := source{event: record.Event, reason: record.Reason, via: record.Via}
	switch {
	case record.Actor != "":
		of.actor = record.Actor
	case record.Client != "":
		of.client = record.Client
	default:
		of.namespace = record.Namespace
	}
	return of
}

// refusals decide which refusals have records of their own: each source has a token bucket, so that no actor
// uses up the records of another one, or hides what it is refused for one reason behind refusals for another.
// Safe for concurrent use.
type refusals struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// buckets has a [rate.Limiter] for each [source].
	buckets *lru.Cache
}

func newRefusals(now clock.PassiveClock) *refusals {
	return &refusals{clock: now, buckets: lru.New(maxBuckets)}
}

// mayBeRecorded takes one record of a refusal from its bucket, and reports whether any was left.
func (r *refusals) mayBeRecorded(refused *audit.Record) bool {
	of := sourceOf(refused)
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.buckets.Get(of)
	bucket, isKnown := found.(*rate.Limiter)
	if !isKnown {
		bucket = rate.NewLimiter(refusalsPerSecond, refusalBurst)
		r.buckets.Add(of, bucket)
	}
	return bucket.AllowN(r.clock.Now(), 1)
}

// omissions count the records that are not written, until they are told. The zero value is ready for use. Safe for
// concurrent use.
type omissions struct {
	mu     sync.Mutex
	counts map[omission]*omitted
}

// omission is what omitted records have in common that count together.
type omission struct {
	source

	cause audit.Cause
}

// omitted counts records, the first and last of which are of these times.
type omitted struct {
	count        int64
	since, until v1alpha1.Timestamp
}

func (o *omissions) add(record *audit.Record, cause audit.Cause) {
	of := omission{sourceOf(record), cause}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.counts) >= maxCounts && o.counts[of] == nil {
		of.actor, of.client, of.namespace = "", "", ""
	}
	if o.counts == nil {
		o.counts = map[omission]*omitted{}
	}
	counted := o.counts[of]
	if counted == nil {
		counted = &omitted{since: record.Time, until: record.Time}
		o.counts[of] = counted
	}
	counted.count++
	if record.Time.Before(counted.since.Time) {
		counted.since = record.Time
	}
	if counted.until.Before(record.Time.Time) {
		counted.until = record.Time
	}
}

// drain returns a record of each count, and begins to count anew.
func (o *omissions) drain() []audit.Record {
	o.mu.Lock()
	counts := o.counts
	o.counts = nil
	o.mu.Unlock()
	records := make([]audit.Record, 0, len(counts))
	for of, counted := range counts {
		records = append(records, audit.Record{
			Schema: audit.Schema, Time: counted.until, Event: audit.Omitted, Reason: of.reason, Via: of.via,
			Actor: of.actor, Namespace: of.namespace, Client: of.client,
			OmittedEvent: of.event, Cause: of.cause, Count: counted.count, Since: counted.since,
		})
	}
	slices.SortFunc(records, func(a, b audit.Record) int {
		return cmp.Or(cmp.Compare(a.Actor, b.Actor), a.Time.Compare(b.Time.Time))
	})
	return records
}
