package robustness_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/lock/audit"
)

// auditDelay is how long before and after a write the requests of all replicas must have
// got through for the write to have its record for certain: an answer that was lost is
// read back within the operation timeout.
const auditDelay = 6 * time.Second

var (
	begins = []audit.Event{audit.Granted, audit.TakenOver, audit.HandedOn}
	ends   = []audit.Event{audit.Released, audit.Expired, audit.ForceReleased}
)

// checkAudit compares the audit with the grants in etcd: each has at most one record that begins it and one that ends it,
// and no other grant has any.
func (r *record) checkAudit() []string {
	begun, ended, violations := r.countRecords()
	return append(violations, r.wrongCounts(begun, ended, func(count int, _ time.Duration) bool { return count > 1 })...)
}

// checkUnaudited looks for grants without the record that begins or ends them, within the limits of docs/audit.md.
func (r *record) checkUnaudited() []string {
	begun, ended, _ := r.countRecords()
	return r.wrongCounts(begun, ended, func(count int, at time.Duration) bool { return count == 0 && at != never && r.isAudited(at) })
}

// wrongCounts returns the grants whose numbers of records at a time are wrong. What programs with identities do is not
// recorded here, as the webhook of this test has no audit.
func (r *record) wrongCounts(begun, ended map[int64]int, isWrong func(count int, at time.Duration) bool) (violations []string) {
	for _, grant := range r.grants {
		if isHeldKey(grant.key) {
			continue
		}
		if count := begun[grant.token]; isWrong(count, grant.from) {
			violations = append(violations, fmt.Sprintf("audit: %d records begin the grant %d of %s, made at %s", count, grant.token, grant.key, grant.from))
		}
		if count := ended[grant.token]; isWrong(count, grant.to) {
			violations = append(violations, fmt.Sprintf("audit: %d records end the grant %d of %s, ended at %s", count, grant.token, grant.key, grant.to))
		}
	}
	return violations
}

// countRecords counts the records that begin and that end each grant, by its token, and
// returns those of grants that etcd does not have.
func (r *record) countRecords() (begun, ended map[int64]int, violations []string) {
	byToken := r.byToken()
	begun, ended = map[int64]int{}, map[int64]int{}
	for _, record := range r.audited {
		if record.Namespace != clientNamespace || strings.HasPrefix(record.Key, probePrefix) || record.FencingToken == 0 {
			continue
		}
		grant := byToken[record.FencingToken]
		switch {
		case grant == nil && r.clock(record.AcquireTime.Time) < 0: // The grant is none of this history.
		case grant == nil || grant.key != "lock:"+record.Key:
			violations = append(violations, fmt.Sprintf("audit: %s of the grant %d of %s, which etcd does not have", record.Event, record.FencingToken, record.Key))
		case slices.Contains(begins, record.Event):
			begun[record.FencingToken]++
		case slices.Contains(ends, record.Event) && !record.Unconfirmed:
			ended[record.FencingToken]++
		}
	}
	return begun, ended, violations
}

// isAudited reports whether nothing can have kept the record of a write from being made.
func (r *record) isAudited(at time.Duration) bool {
	during := span{at - auditDelay, at + auditDelay}
	for number := range r.passages {
		if !r.undisturbed(number, during, 0) || r.killed(number, during) {
			return false
		}
	}
	return true
}
