package lock

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// The environment variables that [PodFromEnv] reads.
const (
	// PodNameEnv has the downward API's metadata.name.
	PodNameEnv = "POD_NAME"
	// PodUIDEnv has the downward API's metadata.uid.
	PodUIDEnv = "POD_UID"
)

// WithHolderRef names the object that the lock is held for, in the namespace of the lock. The lock
// is released when that object ends; see [v1alpha1.LockSpec]. The service refuses an object that
// does not exist or has ended with [ErrInvalid]. With nil, or without this option, only its
// release or ttl ends the lock. Exception: a façade names the Pod of a caller that uses the token
// of a Pod.
func WithHolderRef(ref *v1alpha1.HolderReference) Option {
	return func(s *settings) {
		s.given |= optionHolderRef
		s.request.HolderRef = ref.DeepCopy()
	}
}

// WithReleaseDelay keeps the lock for some time after the object of [WithHolderRef] has ended, for
// effects that outlive the object. At most 24 hours. The ttl is no longer renewed then and may end
// the lock earlier. Zero means no delay.
func WithReleaseDelay(delay time.Duration) Option {
	return func(s *settings) {
		s.given |= optionReleaseDelay
		s.request.ReleaseDelay = delay
	}
}

// PodFromEnv returns the Pod that the program runs in, for [WithHolderRef], from
// [PodNameEnv] and [PodUIDEnv], which the downward API fills:
//
//	env:
//	- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
//	- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
//
// The error matches [ErrInvalid] if one of them is not set.
func PodFromEnv() (*v1alpha1.HolderReference, error) {
	name, uid := os.Getenv(PodNameEnv), os.Getenv(PodUIDEnv)
	var problems field.ErrorList
	missing := func(child, variable, fieldPath string) {
		problems = append(problems, field.Required(rules.HolderRefPath.Child(child),
			fmt.Sprintf("set %s from the downward API's %s", variable, fieldPath)))
	}
	if name == "" {
		missing("name", PodNameEnv, "metadata.name")
	}
	if uid == "" {
		missing("uid", PodUIDEnv, "metadata.uid")
	}
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}, nil
}
