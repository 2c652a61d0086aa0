package rules

import (
	"slices"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// strippedAnnotation marks a lock that lacks annotations or labels which are stored. It is not the name of an
// annotation, so the API server refuses to store such a lock.
const strippedAnnotation = "forrst.dev/stripped: read the lock before writing it"

// maxKeptLabels is how many labels a lock may have for caches to keep them. In memory a short label
// takes ten times its bytes.
const maxKeptLabels = 32

// maxConnection is the length of a UUID.
const maxConnection = 36

// keptAnnotations are those that the service reads, whatever they say.
var keptAnnotations = []string{v1alpha1.AcquisitionAnnotation, v1alpha1.ForceReleaseReasonAnnotation}

// isKept reports whether the service reads the annotation of locks in its caches.
func isKept(name, value string) bool {
	return slices.Contains(keptAnnotations, name) || name == v1alpha1.ConnectionAnnotation && len(value) <= maxConnection
}

// Stripped returns the lock as caches keep it: without the API server's record of who sets which
// field, and without the annotations of users and tools, which the service does not read. It returns
// the lock itself if it has neither, and does not modify it. Labels, if they are not very many, and
// owner references stay: renewals write them back. A renewal must know whether the lock is applied as a
// manifest, so such a lock counts as lacking annotations. A lock with finalizers keeps all, since what ends it
// writes it first.
func Stripped(lock *v1alpha1.Lock) *v1alpha1.Lock {
	hasManyLabels := len(lock.Labels) > maxKeptLabels
	hasForeign := hasManyLabels || isManifest(lock)
	for name, value := range lock.Annotations {
		hasForeign = hasForeign || !isKept(name, value)
	}
	hasForeign = hasForeign && len(lock.Finalizers) == 0
	if lock.ManagedFields == nil && !hasForeign {
		return lock
	}
	stripped := *lock
	stripped.ManagedFields = nil
	if hasForeign {
		stripped.Annotations = map[string]string{strippedAnnotation: ""}
		for name, value := range lock.Annotations {
			if isKept(name, value) {
				stripped.Annotations[name] = value
			}
		}
	}
	if hasForeign && hasManyLabels {
		stripped.Labels = nil
	}
	return &stripped
}

// IsStripped reports whether the lock lacks annotations or labels that are stored. It must be read before it is
// written.
func IsStripped(lock *v1alpha1.Lock) bool {
	_, isStripped := lock.Annotations[strippedAnnotation]
	return isStripped
}
