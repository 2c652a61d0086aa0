package holders

import (
	"fmt"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// holderEnd says how the object that held a lock ended.
type holderEnd struct {
	ref v1alpha1.HolderReference
	// how completes a sentence that begins with the name of the object, as in "was deleted".
	how string
}

// String is a part of a sentence, such as "Pod worker-0 (UID …) was deleted".
func (e holderEnd) String() string {
	return fmt.Sprintf("%s %s (UID %s) %s", e.ref.Kind, e.ref.Name, e.ref.UID, e.how)
}

const howDeleted = "was deleted"
