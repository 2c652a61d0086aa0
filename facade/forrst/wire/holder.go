package wire

import (
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// HolderRef names the object, in the namespace of a lock, that the lock is held for.
// Every member is required.
type HolderRef struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// NewHolderRef returns nil for nil.
func NewHolderRef(ref *v1alpha1.HolderReference) *HolderRef {
	if ref == nil {
		return nil
	}
	return &HolderRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
}

// Reference returns nil for nil.
func (r *HolderRef) Reference() *v1alpha1.HolderReference {
	if r == nil {
		return nil
	}
	return &v1alpha1.HolderReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID)}
}
