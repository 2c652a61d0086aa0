package forrst

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

// HolderChecker looks for the objects that callers say they hold locks for. The error
// matches [lock.ErrInvalid] if there is no such object.
type HolderChecker interface {
	Check(ctx context.Context, namespace string, ref *v1alpha1.HolderReference) error
}

// bind has the lock end with the object that it is held for: the one that the caller
// names, or else the Pod whose token it shows. Whoever authenticated the token has found the
// Pod to exist, so that costs no request.
func (c *call) bind(ctx context.Context, request *lock.Request) error {
	namespace := c.caller.Namespace
	podNamespace, pod := holderref.PodOf(c.caller.User)
	isPodHere := pod != nil && podNamespace == namespace
	switch named := request.HolderRef; {
	case named == nil && isPodHere:
		request.HolderRef = pod
	case named == nil, isPodHere && *named == *pod:
	case c.config.Holders == nil:
		return &lock.InvalidError{Problems: field.ErrorList{
			field.Forbidden(rules.HolderRefPath, "objects are not looked for here; leave it out"),
		}}
	default:
		return c.config.Holders.Check(ctx, namespace, named)
	}
	return nil
}

// readHolderRef reads the object that the caller names. What is in its fields is
// checked with the rest of the request.
func readHolderRef(fields *envelope.Fields, problems *envelope.Errors) *v1alpha1.HolderReference {
	raw := fields.Object("holder_ref")
	if raw == nil {
		return nil
	}
	object, _ := envelope.ReadObject(raw, fields.Pointer("holder_ref"), envelope.InvalidArguments, problems)
	ref := &v1alpha1.HolderReference{}
	ref.APIVersion, _ = object.RequiredText("api_version")
	ref.Kind, _ = object.RequiredText("kind")
	ref.Name, _ = object.RequiredText("name")
	uid, _ := object.RequiredText("uid")
	ref.UID = types.UID(uid)
	return ref
}
