package objectlock

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"forrst.dev/lock-operator/lock"
)

// Key returns the key under which [Acquire] locks a Kubernetes object, of
// scope Global:
//
//	object:{kind}.{group}:{namespace}:{name}
//
// The kind is in lower case; "." and the group are left out in the core group, and
// the namespace and its ":" for objects that have none. Examples:
//
//	object:deployment.apps:shop:web
//	object:configmap:shop:settings
//	object:node:worker-1
//
// The version is left out on purpose: all versions of an object are one object. Since a
// kind either has namespaces or has not, distinct objects have distinct keys. Taking
// the lock of this key, with any tool, in the namespace of the client, excludes
// [Acquire].
func Key(kind schema.GroupKind, object client.ObjectKey) string {
	key := "object:" + strings.ToLower(kind.Kind)
	if kind.Group != "" {
		key += "." + kind.Group
	}
	if object.Namespace != "" {
		key += ":" + object.Namespace
	}
	return key + ":" + object.Name
}

// kindOf returns the kind of the object: from the scheme of the reader, if it has one, as all
// clients of controller-runtime do, or else from the object.
func kindOf(reader client.Reader, object client.Object) (schema.GroupVersionKind, error) {
	if typed, ok := reader.(interface{ Scheme() *runtime.Scheme }); ok {
		return apiutil.GVKForObject(object, typed.Scheme())
	}
	kind := object.GetObjectKind().GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" {
		return kind, fmt.Errorf("%w: the kind of %T is not known: set apiVersion and kind, or read with a client that has a scheme", lock.ErrInvalid, object)
	}
	return kind, nil
}

// errNoObject refuses a nil object and one without a name.
var errNoObject = errors.New("the object must be set and have a name")
