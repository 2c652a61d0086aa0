package holders

import (
	"fmt"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// HolderEnd says how the object that a lock was held for has ended.
type End struct {
	// Ref names the object.
	Ref v1alpha1.HolderReference
	// How goes on from the name of the object, as in "was deleted".
	How string
}

// String is a part of a sentence, such as "Pod worker-0 (UID …) was deleted".
func (e End) String() string {
	return fmt.Sprintf("%s %s (UID %s) %s", e.Ref.Kind, e.Ref.Name, e.Ref.UID, e.How)
}

const howDeleted = "was deleted"
