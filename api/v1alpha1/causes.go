package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CauseTypeHeld is among the causes of the Status with which admission refuses a change of
// a lock that is held. Its reason is Forbidden, and without the cause it could not be told
// from a missing right. Check it with apierrors.HasStatusCause.
const CauseTypeHeld metav1.CauseType = "LockHeld"
