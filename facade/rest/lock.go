package rest

import (
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/problems"
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
	FencingToken *int64     `json:"fencing_token,omitempty"`
	Holder       string     `json:"holder"`
	Reason       string     `json:"reason,omitempty"`
	HolderRef    *HolderRef `json:"holder_ref,omitempty"`
	// ReleaseDelaySeconds is how long the lock stays after the object of HolderRef has ended.
	ReleaseDelaySeconds *float64 `json:"release_delay_seconds,omitempty"`
	// TTLSeconds is nil for a lock that a manifest holds until a fixed time.
	TTLSeconds *float64 `json:"ttl_seconds,omitempty"`
	AcquiredAt string   `json:"acquired_at"`
	RenewedAt  string   `json:"renewed_at"`
	ExpiresAt  string   `json:"expires_at"`
}

// HolderRef names the object, in the namespace of a lock, that the lock is held for.
type HolderRef struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// describe returns a lock as callers are told it.
func describe(held *v1alpha1.Lock) Lock {
	spec := &held.Spec
	described := Lock{
		Namespace: held.Namespace, Key: spec.Key, Function: spec.Function,
		Holder: spec.Holder, Reason: spec.Reason,
		TTLSeconds: secondsOf(spec.TTL), ReleaseDelaySeconds: secondsOf(spec.ReleaseDelay),
		AcquiredAt: formatStamp(spec.AcquireTime), RenewedAt: formatStamp(spec.RenewTime), ExpiresAt: formatStamp(spec.ExpireTime),
	}
	if ref := spec.HolderRef; ref != nil {
		described.HolderRef = &HolderRef{ref.APIVersion, ref.Kind, ref.Name, string(ref.UID)}
	}
	if token, err := held.FencingToken(); err == nil {
		described.FencingToken = &token
	}
	return described
}

func secondsOf(length *metav1.Duration) *float64 {
	if length == nil {
		return nil
	}
	return new(length.Seconds())
}

func formatStamp(at *v1alpha1.Timestamp) string {
	if at == nil {
		return problems.FormatTime(time.Time{})
	}
	return at.String()
}

// pathOf returns the path of a lock. Clients remove segments that are dots, also if those are
// percent-encoded, so a key that is one is spelled so only for those that do not.
func pathOf(namespace, key, function string) string {
	segment := url.PathEscape(key)
	if key == "." || key == ".." {
		segment = strings.ReplaceAll(key, ".", "%2E")
	}
	path := strings.NewReplacer("{"+namespacePart+"}", namespace, "{"+keyPart+"}", segment).Replace(lockPath)
	if function != "" {
		path += "?" + url.Values{"function": {function}}.Encode()
	}
	return path
}

// lockName is what a request about one lock names.
type lockName struct {
	scope    v1alpha1.Scope
	function string
	key      string
}

func newLockName(key, function string) lockName {
	if function == "" {
		return lockName{scope: v1alpha1.ScopeGlobal, key: key}
	}
	return lockName{scope: v1alpha1.ScopeFunction, function: function, key: key}
}

func (n lockName) fullKey() v1alpha1.FullKey { return v1alpha1.NewFullKey(n.scope, n.function, n.key) }

// readName returns the lock that path and query name.
func (c *call) readName(found *mistakes) lockName {
	name := newLockName(c.request.PathValue(keyPart), c.query.text("function"))
	if err := v1alpha1.ValidateKey(name.key); err != nil {
		found.add(FieldError{In: inPath, Field: keyPart, Detail: err.Error(), Value: strings.ToValidUTF8(name.key, "\uFFFD")})
	}
	if c.query.has("function") {
		if err := v1alpha1.ValidateFunction(name.function); err != nil {
			found.add(FieldError{In: inQuery, Field: "function", Detail: err.Error(), Value: name.function})
		}
	}
	return name
}

// requestedLock returns the one lock that the request is about, or "" if it is about those of a
// namespace. What is wrong with the request is left to the operation, which reads the same.
func (c *call) requestedLock() v1alpha1.FullKey {
	key := c.request.PathValue(keyPart)
	if key == "" {
		return ""
	}
	if c.operation != acquireLock {
		return newLockName(key, c.query.text("function")).fullKey()
	}
	var ignored mistakes
	body, err := readBody(c.body, &ignored)
	if err != nil {
		return ""
	}
	return newLockName(key, body.text("function")).fullKey()
}

// readHolderRef returns the object that a body names, nil if it names none.
func readHolderRef(body *members) *v1alpha1.HolderReference {
	object := body.object("holder_ref")
	if object == nil {
		return nil
	}
	ref := &v1alpha1.HolderReference{
		APIVersion: object.requiredText("api_version"),
		Kind:       object.requiredText("kind"),
		Name:       object.requiredText("name"),
		UID:        types.UID(object.requiredText("uid")),
	}
	object.refuseOthers()
	return ref
}
