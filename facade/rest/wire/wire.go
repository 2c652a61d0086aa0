// Package wire has what the REST door answers about locks, as its clients read it; docs/rest.md explains it.
package wire

import (
	"net/url"
	"strings"
)

// Lock is a lock that is held, as callers are told it.
type Lock struct {
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
	// Function is what the key belongs to, if it belongs to one.
	Function string `json:"function,omitempty"`
	// LockToken proves the grant. Only the answer to its acquire has it.
	LockToken string `json:"lock_token,omitempty"`
	// FencingToken is the number of the grant: a number, since resourceVersions stay below 2^53 for
	// centuries. Nil if the lock is about to be deleted and its number is no longer known.
	FencingToken *int64 `json:"fencing_token,omitempty"`
	Holder       string `json:"holder"`
	// HeldBy is [HeldByConnection] for a lock that a connection of the holder has acquired or taken up.
	HeldBy    string     `json:"held_by,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	HolderRef *HolderRef `json:"holder_ref,omitempty"`
	// Guards are the objects that only the holder may write.
	Guards []Guard `json:"guards,omitempty"`
	// ReleaseDelaySeconds is how long the lock stays after the object of HolderRef has ended.
	ReleaseDelaySeconds *float64 `json:"release_delay_seconds,omitempty"`
	// TTLSeconds is nil for a lock that a manifest holds until a fixed time.
	TTLSeconds *float64 `json:"ttl_seconds,omitempty"`
	AcquiredAt string   `json:"acquired_at"`
	RenewedAt  string   `json:"renewed_at"`
	ExpiresAt  string   `json:"expires_at"`
}

// HeldByConnection is a value of [Lock].HeldBy.
const HeldByConnection = "connection"

// HolderRef names the object, in the namespace of a lock, that the lock is held for.
type HolderRef struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// Guard names guarded objects in the namespace of a lock: one by its name, or those that a selector matches.
type Guard struct {
	// Group is empty for the core group.
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	// Selector is a label selector as kubectl takes it. It and Name are empty for all objects of the resource.
	Selector string `json:"selector,omitempty"`
}

// Locks is a part of the locks of a namespace.
type Locks struct {
	// Locks are ordered by the names of their objects.
	Locks []Lock `json:"locks"`
	// Continue is a parameter that asks for the next part. Empty if there is none.
	Continue string `json:"continue,omitempty"`
}

// Set is locks that are held together.
type Set struct {
	// LockToken proves all of the grants. Only the answer to their acquire has it.
	LockToken string `json:"lock_token,omitempty"`
	// FencingToken is the number of the last grant, which fences each of the locks.
	FencingToken int64 `json:"fencing_token"`
	// ExpiresAt is when the first of the locks expires unless it is renewed.
	ExpiresAt string `json:"expires_at"`
	// Locks are in the order of their full keys.
	Locks []Lock `json:"locks"`
}

// Waiters are those that wait for a lock, in the order in which they get it, or for any of a namespace.
type Waiters struct {
	Waiters []Waiter `json:"waiters"`
	// More says that others may wait after these.
	More bool `json:"more,omitempty"`
}

// Waiter is a caller that waits for a lock.
type Waiter struct {
	Key      string `json:"key"`
	Function string `json:"function,omitempty"`
	// Place is 1 for the caller that gets the lock next.
	Place int `json:"place"`
	// Priority is that of its call.
	Priority  int32      `json:"priority,omitempty"`
	Holder    string     `json:"holder"`
	Reason    string     `json:"reason,omitempty"`
	HolderRef *HolderRef `json:"holder_ref,omitempty"`
	// Door is how the caller came: forrst or rest, or job for a Job.
	Door  string `json:"door,omitempty"`
	Since string `json:"since"`
	// Until is when its wait ends. Empty if only the caller ends it.
	Until string `json:"until,omitempty"`
}

// Names of events.
const (
	// EventSync has all locks that are held: at the beginning, and whenever some changes may have been
	// missed.
	EventSync = "sync"
	// EventAcquired is a grant of a free lock, or of one that had expired.
	EventAcquired = "acquired"
	// EventHandedOff is a grant to a waiter in the write that ended the grant before.
	EventHandedOff = "handed-off"
	EventRenewed   = "renewed"
	// EventChanged is any other change of a held lock, such as one of its reason.
	EventChanged = "changed"
	// EventReleased is the end of a grant before its time, by its holder or by force.
	EventReleased = "released"
	EventExpired  = "expired"
)

// Events of a connection that holds a lock. It begins with [EventAcquired], or with [EventRenewed] if the lock was held before.
const (
	// EventLost says why the caller does not hold the lock any more, as a problem document.
	EventLost = "lost"
	// EventReconnect says that the service ends the connection, and that the lock stays for its ttl, as [Reconnect].
	EventReconnect = "reconnect"
)

// Events of a feed, which begins with [EventSync], too.
const (
	// EventPast has grants that ended before the viewer came, as [Past]. There may be several, or none.
	EventPast = "past"
	// EventChanges has what happened to locks since the event before, in order, as [Changes].
	EventChanges = "changes"
	// EventLines has how many callers wait for each lock, as [Lines].
	EventLines = "lines"
)

// Snapshot is what [EventSync] has.
type Snapshot struct {
	// Now is the time of the service.
	Now   string `json:"now"`
	Locks []Lock `json:"locks"`
}

// Reconnect is what [EventReconnect] has.
type Reconnect struct {
	// Detail says what to do.
	Detail string `json:"detail"`
}

// Past is grants that have ended, in the order in which that was seen.
type Past struct {
	// Since is from when on the service knows of every end, but for those of a lock that has too many.
	Since  string      `json:"since"`
	Grants []PastGrant `json:"grants"`
}

// PastGrant is a grant that has ended.
type PastGrant struct {
	// Event is what has ended it: [EventReleased], [EventExpired] or [EventHandedOff].
	Event   string `json:"event"`
	EndedAt string `json:"ended_at"`
	// Lock is as it was last.
	Lock Lock `json:"lock"`
}

// Changes are changes of locks.
type Changes struct {
	// Now is the time of the service.
	Now     string   `json:"now"`
	Changes []Change `json:"changes"`
}

// Change is a change of a lock.
type Change struct {
	// Event is the name of an event, such as [EventAcquired].
	Event string `json:"event"`
	// Lock is as it is stored or, if it is no longer held, as it was last.
	Lock Lock `json:"lock"`
}

// Lines are those of all locks that callers wait for.
type Lines struct {
	Lines []Line `json:"lines"`
	// IsComplete is false if callers wait for more locks than these.
	IsComplete bool `json:"is_complete"`
}

// Line tells how many callers wait for a lock.
type Line struct {
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
	Function  string `json:"function,omitempty"`
	Waiting   int    `json:"waiting"`
}

// Rights is what a caller may do.
type Rights struct {
	// User is who calls, and IsAuthenticated whether the caller has an identity.
	User            string `json:"user"`
	IsAuthenticated bool   `json:"is_authenticated"`
	// OwnNamespace is that of the caller's service account, or the only one that is served. Empty if there is none.
	OwnNamespace string `json:"own_namespace,omitempty"`
	// Verbs are those on locks.forrst.dev that the caller has where it asked.
	Verbs []string `json:"verbs"`
}

// EventStream is the media type of events.
const EventStream = "text/event-stream"

// LastEventID is the header of a request for events that goes on after the event with this id.
const LastEventID = "Last-Event-ID"

// LockPath returns the path of a lock, with the parameter function unless that is empty. Clients remove segments
// that are dots, also if those are percent-encoded, so a key that is one is spelled so only for those that do not.
func LockPath(namespace, key, function string) string {
	segment := url.PathEscape(key)
	if key == "." || key == ".." {
		segment = strings.ReplaceAll(key, ".", "%2E")
	}
	path := "/v1/namespaces/" + url.PathEscape(namespace) + "/locks/" + segment
	if function != "" {
		path += "?" + url.Values{"function": {function}}.Encode()
	}
	return path
}

// SetPath returns the path of locks that are held together, with the parameter function unless that is empty.
func SetPath(namespace string, keys []string, function string) string {
	named := url.Values{"key": keys}
	if function != "" {
		named.Set("function", function)
	}
	return "/v1/namespaces/" + url.PathEscape(namespace) + "/acquisitions?" + named.Encode()
}
