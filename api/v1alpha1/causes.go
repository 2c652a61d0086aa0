package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CauseTypeHeld is among the causes of the Status by which admission refuses to change a
// held lock. The reason of that Status is Forbidden; the cause tells it from a missing
// right. Check it with apierrors.HasStatusCause.
const CauseTypeHeld metav1.CauseType = "LockHeld"

// CauseTypeGuarded is among the causes of the Status by which admission refuses to create, change
// or delete an object that a held lock of another holder guards. The reason of that Status is
// Forbidden.
const CauseTypeGuarded metav1.CauseType = "ObjectGuarded"

// CauseTypeNamespaceFull is among the causes of the Status by which admission refuses to create a lock
// in a namespace that has as many as it may have. The reason of that Status is Forbidden.
const CauseTypeNamespaceFull metav1.CauseType = "NamespaceFull"
