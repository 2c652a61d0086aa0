package rules

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// stampGrant turns spec into a grant at the given time. A spec without ttl keeps its absolute
// expireTime.
func stampGrant(spec *v1alpha1.LockSpec, holder User, now time.Time) {
	at := v1alpha1.NewTimestamp(now)
	spec.Holder, spec.HolderUID = holder.Name, storedUID(holder.UID)
	spec.AcquireTime = &at
	spec.RenewTime = at.DeepCopy()
	spec.FencingToken = nil
	spec.HolderEndTime = nil
	if spec.TTL != nil {
		spec.ExpireTime = after(at, spec.TTL.Duration)
	}
}

// stampRenewal replaces the remaining time by a whole ttl; it never adds to it.
func stampRenewal(spec *v1alpha1.LockSpec, now time.Time) {
	at := v1alpha1.NewTimestamp(now)
	spec.RenewTime = &at
	spec.ExpireTime = after(at, spec.TTL.Duration)
}

// recordToken stores the fencing token of the grant in next, because a write that is not a grant
// changes the resourceVersion. The token is exact: the write succeeds only if the resourceVersion
// of current is still in force.
func recordToken(next, current *v1alpha1.Lock) error {
	if !current.DeletionTimestamp.IsZero() && current.Spec.FencingToken == nil {
		// The delete has already changed the resourceVersion, and the token is unknown.
		return nil
	}
	token, err := current.FencingToken()
	if err != nil {
		return err
	}
	next.Spec.FencingToken = &token
	return nil
}

// distinguishGrant makes the acquireTime of next differ from that of previous, regardless of the
// clocks: this difference tells a grant from a renewal.
func distinguishGrant(next, previous *v1alpha1.LockSpec) {
	if next.AcquireTime.Equal(previous.AcquireTime) {
		next.AcquireTime = after(*next.AcquireTime, time.Microsecond)
		next.RenewTime = next.AcquireTime.DeepCopy()
		if next.TTL != nil {
			next.ExpireTime = after(*next.RenewTime, next.TTL.Duration)
		}
	}
}

// after rounds up to the next microsecond: a positive d always gives a later time.
func after(t v1alpha1.Timestamp, d time.Duration) *v1alpha1.Timestamp {
	later := v1alpha1.NewTimestamp(t.Add(d + time.Microsecond - time.Nanosecond))
	return &later
}

// keepStamps copies stamped fields that a manifest leaves out.
func keepStamps(next, old *v1alpha1.LockSpec) {
	if next.Owner == "" {
		next.Owner = old.Owner
	}
	if next.Holder == "" {
		next.Holder = old.Holder
	}
	if next.HolderUID == "" {
		next.HolderUID = old.HolderUID
	}
	if next.AcquireTime == nil {
		next.AcquireTime = old.AcquireTime.DeepCopy()
	}
	if next.RenewTime == nil {
		next.RenewTime = old.RenewTime.DeepCopy()
	}
	if next.ExpireTime == nil {
		next.ExpireTime = old.ExpireTime.DeepCopy()
	}
	if next.TTL == nil && next.ExpireTime.Equal(old.ExpireTime) && old.TTL != nil {
		ttl := *old.TTL
		next.TTL = &ttl
	}
	if next.HolderEndTime == nil {
		next.HolderEndTime = old.HolderEndTime.DeepCopy()
	}
	if next.RenewalEndTime == nil {
		next.RenewalEndTime = old.RenewalEndTime.DeepCopy()
	}
	if next.FencingToken == nil && old.FencingToken != nil {
		token := *old.FencingToken
		next.FencingToken = &token
	}
}

// foreignStamps reports changes to stamped fields.
func foreignStamps(next, old *v1alpha1.LockSpec) field.ErrorList {
	var problems field.ErrorList
	refuse := func(name string) {
		problems = append(problems, field.Forbidden(field.NewPath("spec", name), "is stamped by the service; leave it out"))
	}
	if next.Holder != old.Holder {
		refuse("holder")
	}
	if next.HolderUID != old.HolderUID {
		refuse("holderUID")
	}
	if !next.AcquireTime.Equal(old.AcquireTime) {
		refuse("acquireTime")
	}
	if !next.RenewTime.Equal(old.RenewTime) {
		refuse("renewTime")
	}
	if !next.HolderEndTime.Equal(old.HolderEndTime) {
		refuse("holderEndTime")
	}
	if !next.RenewalEndTime.Equal(old.RenewalEndTime) {
		refuse("renewalEndTime")
	}
	if !equality.DeepEqual(next.FencingToken, old.FencingToken) {
		refuse("fencingToken")
	}
	return problems
}
