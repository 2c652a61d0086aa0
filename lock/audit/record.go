package audit

import "forrst.dev/lock-operator/api/v1alpha1"

// Schema is the version of the format of a [Record]. Fields and values may be added within a
// version; a field with a changed meaning would need a new one.
const Schema = "forrst.dev/audit/v1"

const (
	// MaxMessageBytes bounds [Record.Message], the key and the function; what is longer is cut.
	MaxMessageBytes = 1024
	// MaxNameBytes bounds each other text of a record. A longer one is cut, and ends with [CutMark].
	MaxNameBytes = 512
	// CutMark ends a name that was cut.
	CutMark = "…"
)

// Record is one fact about one lock. It contains no owner token.
type Record struct {
	// Schema is [Schema].
	Schema string `json:"schema"`
	// Time is when the event happened, on the clock of the lock service: the acquireTime of a
	// grant, the renewTime of a renewal, and otherwise when the event was found to have happened.
	Time v1alpha1.Timestamp `json:"time"`
	// Event says what happened.
	Event Event `json:"event"`
	// Reason says why a grant ended or a request was refused.
	Reason Reason `json:"reason,omitempty"`
	// Via says through which path the event happened.
	Via Via `json:"via"`
	// Actor is the authenticated identity that caused the event; for the lock of a Job it is the
	// operator. Empty if the operator ended a lock by itself, such as an expired one, or if the caller
	// is known only by the owner token.
	Actor string `json:"actor,omitempty"`
	// Namespace and Lock name the object. Lock is empty for a refused manifest without a name and
	// a valid key, and for a refused write for which no lock could be found out.
	Namespace string `json:"namespace"`
	Lock      string `json:"lock,omitempty"`
	// UID is the UID of the object. Empty for a create that is admitted or refused, and, like what follows
	// from the lock, for a write that was refused because the lock could not be read.
	UID string `json:"uid,omitempty"`
	// Key, Scope and Function identify the lock; see [v1alpha1.LockSpec].
	Key      string         `json:"key,omitempty"`
	Scope    v1alpha1.Scope `json:"scope,omitempty"`
	Function string         `json:"function,omitempty"`
	// Holder is the authenticated identity to which the lock was granted; for a refusal, the
	// present holder, if there is one.
	Holder string `json:"holder,omitempty"`
	// OwnerHash is the first 96 bits of the SHA-256 of the owner token in hex.
	OwnerHash string `json:"ownerHash,omitempty"`
	// FencingToken is the number of the grant. Zero if unknown: the grant is only admitted, the lock was
	// already being deleted, or there is no grant.
	FencingToken int64 `json:"fencingToken,omitempty"`
	// AcquireTime and ExpireTime are as stamped.
	AcquireTime v1alpha1.Timestamp `json:"acquireTime,omitzero"`
	ExpireTime  v1alpha1.Timestamp `json:"expireTime,omitzero"`
	// HeldSeconds is how long the lock was held: until its end, at most until its expireTime. Nil
	// unless the event ends a grant, and in a dry run.
	HeldSeconds *float64 `json:"heldSeconds,omitempty"`
	// Operation is the refused operation, or that on a guarded object: create, update or delete. Of
	// the façade it is the name by which the door knows it; of a Job that the API server refuses its lock
	// or its start, acquire or start.
	Operation string `json:"operation,omitempty"`
	// Object is the guarded object of [WriteAdmitted] and [WriteRefused], or the Job of a refusal, in
	// the namespace of the lock; nil for other events.
	Object *Object `json:"object,omitempty"`
	// Door is the door of the façade that refused a call: forrst or rest.
	Door string `json:"door,omitempty"`
	// Client is the network address of a caller of the façade whose identity is not known.
	Client string `json:"client,omitempty"`
	// Message is the reason of a forced release, how the holder's object ended, or the text of a
	// refusal; at most [MaxMessageBytes].
	Message string `json:"message,omitempty"`
	// Unconfirmed says that the grant has ended, but whether by the write of this record is not
	// known: the write went unanswered, or found nothing, and another one, with its own record, may
	// have come first.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Admitted says that the record was made when admission let the change pass. The API server stores it
	// after that, unless something refuses it then; the record is not taken back.
	Admitted bool `json:"admitted,omitempty"`
	// DryRun says that nothing happens but the admission: of forced releases, which have records even then.
	DryRun bool `json:"dryRun,omitempty"`
	// IsLate says of a renewal that less than a fifth of the time since the grant or the renewal before was
	// left. It is for metrics, and no part of the text: readers compare the times of the records.
	IsLate bool `json:"-"`
	// ResourceVersion is the version of the lock that the record is of, empty if it has none. It is for Events, and no
	// part of the text.
	ResourceVersion string `json:"-"`
	// OmittedEvent, Cause, Count and Since are those of [Omitted]: what the records would have been,
	// why they are missing, how many they are, and the time of the first. Time is that of the last.
	OmittedEvent Event              `json:"omittedEvent,omitempty"`
	Cause        Cause              `json:"cause,omitempty"`
	Count        int64              `json:"count,omitempty"`
	Since        v1alpha1.Timestamp `json:"since,omitzero"`
}

// Object names an object that a lock guards, or a Job.
type Object struct {
	// Group is empty for the core group.
	Group string `json:"group,omitempty"`
	// Resource is empty, and Group with it, for a write that was refused before it was read.
	Resource string `json:"resource,omitempty"`
	// Subresource is empty for the object itself.
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name"`
}

// Event is what happened.
type Event string

// Events that begin a grant.
const (
	// Granted means that a free lock was acquired.
	Granted Event = "Granted"
	// TakenOver means that an acquire replaced an expired lock.
	TakenOver Event = "TakenOver"
	// HandedOn means that the next waiter acquired the lock in the write that released it.
	HandedOn Event = "HandedOn"
)

// Events that end a grant.
const (
	// Released means that the holder, a component on its behalf, or the cluster ended the lock.
	Released Event = "Released"
	// Expired means that the lock was not renewed in time, and was deleted or replaced
	// since.
	Expired Event = "Expired"
	// ForceReleased means that another user ended the lock while it was held.
	ForceReleased Event = "ForceReleased"
)

// Other events.
const (
	// Renewed means that the remaining time of a lock was replaced.
	Renewed Event = "Renewed"
	// Refused means that admission refused to create, change or delete a lock or a Job under a lock,
	// that the façade refused a call, or that the API server refused a Job its lock or its start.
	Refused Event = "Refused"
	// Omitted stands for records that were not written.
	Omitted Event = "Omitted"
)

// Events of objects that a lock guards.
const (
	// WriteAdmitted means that the holder was allowed to create, change or delete an object that the
	// lock guards. Whether the write then succeeded is not known.
	WriteAdmitted Event = "WriteAdmitted"
	// WriteRefused means that a user was not allowed to create, change or delete such an object.
	WriteRefused Event = "WriteRefused"
)

// Reason says why a grant ended, or why a request was refused.
type Reason string

// Reasons of [Released].
const (
	// ByOwner means that the holder, or a caller with the owner token, released the lock.
	ByOwner Reason = "ByOwner"
	// PassedOn means that the next waiter got the lock in the same write.
	PassedOn Reason = "PassedOn"
	// Abandoned means that the caller had left before it could get the lock.
	Abandoned Reason = "Abandoned"
	// HolderGone means that the object of holderRef was deleted or has ended.
	HolderGone Reason = "HolderGone"
	// NamespaceDeleted means that the namespace controller deleted the lock.
	NamespaceDeleted Reason = "NamespaceDeleted"
	// OwnersGone means that the garbage collector deleted the lock with its owners.
	OwnersGone Reason = "OwnersGone"
)

// Reasons of [Expired].
const (
	// Reaped means that the expired lock was deleted.
	Reaped Reason = "Reaped"
	// Replaced means that the expired lock was taken over.
	Replaced Reason = "Replaced"
)

// ByForce is the reason of [ForceReleased].
const ByForce Reason = "ByForce"

// Reasons of [Refused].
const (
	// Held means that the lock to create is already held.
	Held Reason = "Held"
	// Conflict means that another user holds the lock, or that the lock has changed or expired
	// meanwhile.
	Conflict Reason = "Conflict"
	// Invalid means that the request breaks a rule of the Lock type.
	Invalid Reason = "Invalid"
	// Forbidden means that the user lacks a right.
	Forbidden Reason = "Forbidden"
	// Failed means that the request could not be checked.
	Failed Reason = "Failed"
	// Unauthenticated means that the façade does not know the caller.
	Unauthenticated Reason = "Unauthenticated"
	// WrongOwner means that the caller of the façade does not hold the lock: by its owner token or lock
	// token, or by its identity.
	WrongOwner Reason = "WrongOwner"
	// RateLimited means that the caller of the façade has used up its share.
	RateLimited Reason = "RateLimited"
)

// Cause says why records are missing.
type Cause string

// The causes.
const (
	// TooManyRefusals means that the actor was refused too often for a record of each refusal.
	TooManyRefusals Cause = "too_many_refusals"
	// BufferFull means that records came in faster than they could be written.
	BufferFull Cause = "buffer_full"
	// NotWritten means that the process ended before the records could be written.
	NotWritten Cause = "not_written"
	// Closed means that the audit had ended.
	Closed Cause = "closed"
)

// Guarded is a reason of [WriteRefused]: another holder has the lock. The other one is [Failed].
const Guarded Reason = "Guarded"

// Via is the path through which an event happened.
type Via string

// The paths.
const (
	// Facade is a call to the façade.
	Facade Via = "facade"
	// Admission is a write by a user to the API server.
	Admission Via = "admission"
	// Controller is a controller of the operator.
	Controller Via = "controller"
)
