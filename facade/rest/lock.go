package rest

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/strictjson"
)

// describe returns a lock as callers are told it.
func describe(held *v1alpha1.Lock) wire.Lock {
	spec := &held.Spec
	described := wire.Lock{
		Namespace: held.Namespace, Key: spec.Key, Function: spec.Function,
		Holder: spec.Holder, Reason: spec.Reason,
		TTLSeconds: secondsOf(spec.TTL), ReleaseDelaySeconds: secondsOf(spec.ReleaseDelay),
		AcquiredAt: formatStamp(spec.AcquireTime), RenewedAt: formatStamp(spec.RenewTime), ExpiresAt: formatStamp(spec.ExpireTime),
	}
	if rules.ConnectionOf(held) != "" {
		described.HeldBy = wire.HeldByConnection
	}
	if ref := spec.HolderRef; ref != nil {
		described.HolderRef = &wire.HolderRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
	}
	for _, each := range spec.Guards {
		guard := wire.Guard{Group: each.Group, Resource: each.Resource, Name: each.Name}
		if each.Selector != nil && each.Name == "" {
			// Without requirements it selects all, which is told by its absence.
			guard.Selector, _ = strings.CutPrefix(metav1.FormatLabelSelector(each.Selector), "<none>")
		}
		described.Guards = append(described.Guards, guard)
	}
	if token, err := held.FencingToken(); err == nil {
		described.FencingToken = &token
	}
	return described
}

func secondsOf(length *v1alpha1.Duration) *float64 {
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
	return c.nameOf(c.Request.PathValue(keyPart), inPath, found)
}

// nameOf returns the lock of a key that is in that part of the request, and of the function that the query names. The lock may
// have been granted by an earlier release.
func (c *call) nameOf(key, in string, found *mistakes) lockName {
	name := newLockName(key, c.query.text("function"))
	if err := v1alpha1.ValidateStoredKey(name.key); err != nil {
		found.Add(FieldError{In: in, Field: keyPart, Detail: err.Error(), Value: strings.ToValidUTF8(name.key, "\uFFFD")})
	}
	c.checkFunction(found)
	return name
}

// checkFunction judges the function that the query names, if it names one.
func (c *call) checkFunction(found *mistakes) {
	function := c.query.text("function")
	if err := v1alpha1.ValidateStoredKey(function); err != nil && c.query.has("function") {
		found.Add(FieldError{In: inQuery, Field: "function", Detail: err.Error(), Value: function})
	}
}

// requestedLock returns the one lock that the request is about, the first one of several, or "" if it is about those of a
// namespace. What is wrong with the request is left to the operation, which reads the same.
func (c *call) requestedLock() v1alpha1.FullKey {
	if c.operation.isOfSet {
		if first := c.firstOfSet(); first.key != "" {
			return first.fullKey()
		}
		return ""
	}
	key := c.Request.PathValue(keyPart)
	if key == "" {
		return ""
	}
	if !c.operation.isAcquisition {
		return newLockName(key, c.query.text("function")).fullKey()
	}
	if c.acquired.key == "" { // The body could not be read.
		return ""
	}
	return c.acquired.fullKey()
}

// readHolderRef returns the object that a body names, nil if it names none.
func readHolderRef(body *strictjson.Members) *v1alpha1.HolderReference {
	object := body.Object("holder_ref")
	if object == nil {
		return nil
	}
	ref := &v1alpha1.HolderReference{
		APIVersion: object.RequiredText("api_version"),
		Kind:       object.RequiredText("kind"),
		Name:       object.RequiredText("name"),
		UID:        types.UID(object.RequiredText("uid")),
	}
	object.RefuseOthers()
	return ref
}
