package holderref

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// PodOf returns the Pod that the caller's service-account token is bound to, and the namespace of
// the Pod. Authentication of the token has verified that the Pod exists. Without such a token, ref
// is nil.
func PodOf(caller user.Info) (namespace string, ref *v1alpha1.HolderReference) {
	if caller == nil {
		return "", nil
	}
	namespace, _, err := serviceaccount.SplitUsername(caller.GetName())
	if err != nil {
		return "", nil
	}
	name, uid := single(caller, serviceaccount.PodNameKey), single(caller, serviceaccount.PodUIDKey)
	if name == "" || uid == "" {
		return "", nil
	}
	return namespace, &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}
}

// single returns the caller's extra value under the key, or nothing unless there is exactly one.
func single(caller user.Info, key string) string {
	values := caller.GetExtra()[key]
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
