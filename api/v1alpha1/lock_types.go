package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Scope says which requests contend for a key.
//
// +kubebuilder:validation:Enum=Global;Function
type Scope string

const (
	// ScopeGlobal makes every request for a key in the namespace contend.
	ScopeGlobal Scope = "Global"
	// ScopeFunction makes only requests for a key of the same function contend.
	ScopeFunction Scope = "Function"
)

// MaxTTL is the longest ttl that a Lock may ask for, as the rule of spec.ttl
// states it. An operator may be configured with a lower maximum, never with a
// higher one.
const MaxTTL = 24 * time.Hour

// MaxReleaseDelay is the longest releaseDelay that a Lock may ask for, as the rule of
// spec.releaseDelay states it.
const MaxReleaseDelay = 24 * time.Hour

// Lock is a distributed lock in a namespace. It is held for as long as it exists
// and has not expired. Its name follows from its key: creating it is acquiring
// the lock, and only one create can succeed. Deleting it is releasing it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=locks,singular=lock,shortName=lk,categories=forrst
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.key`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.spec.holder`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expireTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scope`,priority=1
// +kubebuilder:printcolumn:name="Function",type=string,JSONPath=`.spec.function`,priority=1
// +kubebuilder:printcolumn:name="Object-Kind",type=string,JSONPath=`.spec.holderRef.kind`,priority=1
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.holderRef.name`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`,priority=1
// +kubebuilder:printcolumn:name="Token",type=integer,JSONPath=`.spec.fencingToken`,priority=1,description="The fencing token. Empty after a grant, as long as it is the resourceVersion of the object."
// +kubebuilder:selectablefield:JSONPath=`.spec.key`
// +kubebuilder:selectablefield:JSONPath=`.spec.owner`
// +kubebuilder:selectablefield:JSONPath=`.spec.scope`
// +kubebuilder:selectablefield:JSONPath=`.spec.holder`
type Lock struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name is not free: it is
	// derived from key, scope and function. Leave it out and set generateName to
	// any text to have it filled in, or read it from the message that refuses a
	// wrong one.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec says what is locked, by whom and until when. Required.
	// +required
	Spec LockSpec `json:"spec"`
}

// The one rule of LockSpec is paid on each write. Through optional.of(self) and oldSelf, which is optional, the API server
// reads a field as it is stored. To read self.field, it copies the schema of all fields, twice. A time that is read so is a
// text, which timestamp(dyn(...)) parses: another spelling of acquireTime is not another grant. Where texts are compared,
// one of them is read from self, whose bound limits the estimated cost.

// LockSpec is the whole state of a Lock. A manifest sets key, scope, function,
// owner, ttl or expireTime, renewalPolicy, holderRef, releaseDelay, guards and reason; the
// service stamps the rest.
//
// +kubebuilder:validation:XValidation:rule="optional.of(self).?owner.hasValue() && optional.of(self).?holder.hasValue() && timestamp(dyn(optional.of(self).?expireTime.value())) > timestamp(dyn(optional.of(self).?renewTime.value())) && (optional.of(self).?scope.orValue(\"\") == 'Function') == (optional.of(self).?function.orValue(\"\").size() > 0) && (!oldSelf.hasValue() ? optional.of(self).?acquireTime.hasValue() : timestamp(dyn(optional.of(self).?acquireTime.value())) != timestamp(dyn(oldSelf.?acquireTime.value())) ? !optional.of(self).?fencingToken.hasValue() : self.owner == oldSelf.value().owner && (optional.of(self).?fencingToken.hasValue() || !oldSelf.?fencingToken.hasValue()) && (!optional.of(self).?holderUID.hasValue() || oldSelf.?holderUID.hasValue() && self.holderUID == oldSelf.value().holderUID))",optionalOldSelf=true,messageExpression="!has(self.owner) || !has(self.holder) || !has(self.acquireTime) ? 'owner, holder and times are not stamped: a Lock is created through the admission webhook or the façade of lock-operator; check that the webhook is installed' : self.expireTime <= self.renewTime ? 'expireTime must be later than renewTime' : (self.scope == 'Function') != (has(self.function) && self.function.size() > 0) ? 'function must be set when scope is Function and must be empty when scope is Global' : 'owner, fencingToken and holderUID never change while a grant lasts, and a new grant must not carry a fencingToken; leave them as they are, or release the lock'",message="owner, holder and times are not stamped: a Lock is created through the admission webhook or the façade of lock-operator; check that the webhook is installed"
type LockSpec struct {
	// key names what is locked, for example "billing:report". Required; 1 to 512
	// bytes of UTF-8, without control characters, invisible characters (the Unicode property
	// Default_Ignorable_Code_Point, which joiners and variation selectors of emoji have), and
	// white space at its beginning or end. Keys are case-sensitive. Two locks contend if their
	// full keys are equal after NFC normalisation: the key for scope Global, "function:key" for
	// scope Function. May not change.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\p{Cc}\p{Z}\x{AD}\x{34F}\x{61C}\x{115F}-\x{1160}\x{17B4}-\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]+(\p{Z}+[^\p{Cc}\p{Z}\x{AD}\x{34F}\x{61C}\x{115F}-\x{1160}\x{17B4}-\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]+)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="key is immutable; create another Lock for another key"
	Key string `json:"key"`

	// scope says which requests contend for the key: Global, all requests in the
	// namespace; Function, only requests for the same function. Unset means Global. May
	// not change.
	// +optional
	// +kubebuilder:default=Global
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="scope is immutable; create another Lock for another scope"
	Scope Scope `json:"scope,omitempty"`

	// function is the name of the function that the key belongs to, exactly as it
	// is called, for example "payments.charge". Required when scope is Function,
	// otherwise unset or empty; at most 512 bytes of UTF-8, of the characters that a key may
	// have. May not change.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([^\p{Cc}\p{Z}\x{AD}\x{34F}\x{61C}\x{115F}-\x{1160}\x{17B4}-\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]+(\p{Z}+[^\p{Cc}\p{Z}\x{AD}\x{34F}\x{61C}\x{115F}-\x{1160}\x{17B4}-\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]+)*)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="function is immutable; create another Lock for another function"
	Function string `json:"function,omitempty"`

	// owner is the token that proves this acquisition: a caller of the façade must show it
	// to renew or release the lock. Any text of 1 to 512 bytes. A manifest should set an
	// owner that no other manifest uses: applying a manifest that equals the stored Lock
	// changes nothing, also when another user applies it. Unset means a new UUID v4. It
	// changes only with a new grant.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Owner string `json:"owner,omitempty"`

	// ttl is how long the lock lives after it was acquired or last renewed, as a
	// duration with units, for example "30s", "5m" or "1h30m". At least "1ms" and at
	// most "24h"; the operator may be configured with a lower maximum. Unset means
	// the operator's default (5 minutes unless configured otherwise), or, if
	// expireTime is set instead, that the lock ends at that time. The holder may
	// change it, which renews the lock.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="ttl must be a duration with units of at least 1ms and at most 24h, such as 30s, 5m or 1h30m"
	TTL *Duration `json:"ttl,omitempty"`

	// renewalPolicy says who renews the lock. Holder: the holder does, or the lock expires
	// after its ttl. Operator: lock-operator renews it at a third of its ttl until
	// renewalEndTime, for as long as the Lock exists; deleting the Lock ends it. Operator needs
	// a ttl of at least "1m", and a namespace that allows it by the annotation
	// forrst.dev/max-operator-renewal. Unset means Holder. The holder may change it.
	// +optional
	RenewalPolicy RenewalPolicy `json:"renewalPolicy,omitempty"`

	// renewalEndTime bounds the renewals by lock-operator: none sets a later expireTime. Unset
	// unless renewalPolicy is Operator. Stamped when that is set, from acquireTime and the
	// annotation of the namespace; may not be set or changed. They end sooner if the namespace
	// allows less since.
	// +optional
	RenewalEndTime *Timestamp `json:"renewalEndTime,omitempty"`

	// holder is the authenticated user or service account that acquired the lock,
	// for example "system:serviceaccount:payments:worker". Stamped when the lock is
	// acquired; may not be set or changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Holder string `json:"holder,omitempty"`

	// holderUID is the UID of that user or service account, by which a service account that was
	// deleted and created again is another holder. Unset for users without a UID, and for locks
	// that were acquired before lock-operator kept it: then the name alone counts. Stamped when the
	// lock is acquired; may not be set or changed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	HolderUID string `json:"holderUID,omitempty"`

	// holderRef names the object on whose behalf the lock is held, for example the
	// Pod that does the work. It must be in the namespace of the lock; when it is
	// set, the object must exist and must not have ended. The lock is released when the
	// object is deleted; for a Pod also when it has succeeded or failed; for a Job when it
	// is complete, has failed or is deleted, and its pods have ended. Unset means that
	// only the ttl ends the lock of a holder that is gone. The holder may change it.
	// +optional
	HolderRef *HolderReference `json:"holderRef,omitempty"`

	// releaseDelay is how long the lock stays after the object of holderRef has ended,
	// for holders whose effects outlive them, as a duration with units, for example "30s".
	// At least "0s" and at most "24h"; the ttl ends the lock before that. Unset or zero
	// means that it is released at once. It may only be set together with holderRef. The
	// holder may change it.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="releaseDelay must be a duration with units of at most 24h, such as 0s, 30s or 5m"
	ReleaseDelay *Duration `json:"releaseDelay,omitempty"`

	// holderEndTime is when the object of holderRef was found to have ended. Unset unless
	// the lock stays for its releaseDelay. Stamped; may not be set or changed.
	// +optional
	HolderEndTime *Timestamp `json:"holderEndTime,omitempty"`

	// guards lists objects in the namespace of the lock that only its holder may create,
	// change and delete while it is held. At most 16 entries; unset and empty mean none. The
	// namespace must have opted in by the label forrst.dev/guards=enabled, and the user who
	// acquires the lock must be allowed to create, update and delete what it guards. May not
	// change while a grant lasts: release the lock, or hand it on, to guard other objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Guards []Guard `json:"guards,omitempty"`

	// reason says why the lock is held, for people, for example "monthly close". At
	// most 1024 characters. Unset means that none was given.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// acquireTime is when the lock was acquired, with microseconds. Stamped; may
	// not be set or changed. It differs between two grants of one object.
	// +optional
	AcquireTime *Timestamp `json:"acquireTime,omitempty"`

	// renewTime is when the lock was acquired or last renewed, with microseconds.
	// Stamped; may not be set or changed.
	// +optional
	RenewTime *Timestamp `json:"renewTime,omitempty"`

	// expireTime is when the lock ends unless it is renewed, as an RFC 3339 time.
	// Stamped as renewTime plus ttl. A manifest may set it instead of ttl to hold
	// the lock until a fixed time, such as the end of a freeze, at most 366 days
	// ahead; the operator may be configured with a lower maximum, or to grant none. The
	// maximum of ttl does not bound it. The holder may change a time that a manifest has set.
	// +optional
	ExpireTime *Timestamp `json:"expireTime,omitempty"`

	// fencingToken is the number of this grant. It is unset until the first write after
	// the grant; until then the number is metadata.resourceVersion. Later grants always
	// have larger numbers. Stamped; may not be set or changed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="fencingToken never changes while a grant lasts; leave it as it is"
	FencingToken *int64 `json:"fencingToken,omitempty"`
}

// HolderReference names an object in the namespace of a Lock. Its fields belong
// together: set all of them.
//
// +structType=atomic
type HolderReference struct {
	// apiVersion of the object, for example "v1" or "batch/v1". Required.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object, for example "Pod". Required.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the object. Required.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid of the object: an object created later under the same name is another
	// one. Required.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// Guard names objects in the namespace of a Lock: one by its name, or those that a label
// selector matches.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="set exactly one of name and selector; an empty selector stands for all objects of the resource"
type Guard struct {
	// group is the API group of the objects, without a version, for example "apps". Unset and
	// empty mean the core group. At most 253 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Group string `json:"group,omitempty"`

	// resource is the plural name of the objects' resource, as in URLs, for example
	// "deployments". Its subresources but status are guarded with it. Required; at most 63
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`

	// name of the one guarded object, which need not exist: its creation is guarded, too. Set
	// exactly one of name and selector. At most 253 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// selector matches the guarded objects by their labels, before or after the change. An
	// empty selector matches all objects of the resource. Set exactly one of name and selector.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// LockList is a list of Locks.
//
// +kubebuilder:object:root=true
type LockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`

	// items are the locks.
	Items []Lock `json:"items"`
}
