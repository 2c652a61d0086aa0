package locks

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// ID identifies a lock in all namespaces.
type ID struct {
	Namespace string
	Key       v1alpha1.FullKey
}

// IDOf returns the ID of a lock.
func IDOf(lock *v1alpha1.Lock) ID { return ID{lock.Namespace, lock.Spec.FullKey()} }

// Row is what lists show of a lock. It holds no more, so that many can be kept.
type Row struct {
	ID
	// Name is the name of the object.
	Name string
	// Holder is the holder as people call it, and Identity the authenticated user.
	Holder, Identity string
	// HolderUID is the UID of the object that the lock is held for. Empty if there is none.
	HolderUID    types.UID
	Reason       string
	FencingToken int64
	TTL          time.Duration
	// Times are zero where the lock has none.
	Acquired, Renewed, Expires time.Time
}

// RowOf returns the row of a lock.
func RowOf(lock *v1alpha1.Lock) Row {
	row := Row{
		ID: IDOf(lock), Name: lock.Name, Holder: HolderOf(lock), Identity: lock.Spec.Holder, Reason: lock.Spec.Reason,
		Acquired: timeOf(lock.Spec.AcquireTime), Renewed: timeOf(lock.Spec.RenewTime), Expires: timeOf(lock.Spec.ExpireTime),
	}
	if lock.Spec.HolderRef != nil {
		row.HolderUID = lock.Spec.HolderRef.UID
	}
	if lock.Spec.TTL != nil {
		row.TTL = lock.Spec.TTL.Duration
	}
	if token, err := lock.FencingToken(); err == nil {
		row.FencingToken = token
	}
	return row
}

// HolderOf returns the holder as people call it: the object that the lock is held for,
// such as "Pod/worker-0", or else the service account or the user.
func HolderOf(lock *v1alpha1.Lock) string {
	if ref := lock.Spec.HolderRef; ref != nil {
		return ref.Kind + "/" + ref.Name
	}
	return Person(lock.Spec.Holder, lock.Namespace)
}

// Person returns a user as people in a namespace call it: a service account as kubectl
// does for short, such as "sa/worker", with its namespace if that is another one.
func Person(identity, namespace string) string {
	of, name, err := serviceaccount.SplitUsername(identity)
	switch {
	case err != nil:
		return identity
	case of == namespace:
		return "sa/" + name
	default:
		return "sa/" + name + " of " + of
	}
}

// IsHeld reports whether there is a lock, and it has not expired.
func IsHeld(lock *v1alpha1.Lock, now time.Time) bool {
	return lock != nil && timeOf(lock.Spec.ExpireTime).After(now)
}

// IsHeld reports whether the lock has not expired.
func (r *Row) IsHeld(now time.Time) bool { return r.Expires.After(now) }

// Waiting returns which Jobs of all wait for the lock. One that has got it, and is to be started, is its
// holder.
func (r *Row) Waiting(all map[ID][]Job) []Job {
	if !r.IsUnstarted(all) {
		return all[r.ID]
	}
	return slices.DeleteFunc(slices.Clone(all[r.ID]), r.isHolder)
}

// IsUnstarted reports whether the holder is one of the Jobs that are to be started under a lock: it has no
// Pods yet.
func (r *Row) IsUnstarted(all map[ID][]Job) bool {
	return slices.ContainsFunc(all[r.ID], r.isHolder)
}

func (r *Row) isHolder(job Job) bool { return r.HolderUID != "" && job.UID == r.HolderUID }

// HolderState returns the holder, and whether it is a Job that has not started.
func (r *Row) HolderState(all map[ID][]Job) string {
	if r.IsUnstarted(all) {
		return r.Holder + ", not started"
	}
	return r.Holder
}

// HeldBy reports whether the text is the holder's name or identity, or part of one.
func (r *Row) HeldBy(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(strings.ToLower(r.Holder), text) || strings.Contains(strings.ToLower(r.Identity), text)
}

func timeOf(stamp *v1alpha1.Timestamp) time.Time {
	if stamp == nil {
		return time.Time{}
	}
	return stamp.Time
}
