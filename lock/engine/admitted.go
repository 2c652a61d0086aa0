package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// stampedLater is the placeholder for a holder that admission will stamp.
const stampedLater = "stamped-on-admission"

// clearStamps strips the stamps from the object to write, if the engine's writes are admitted:
// admission sets them, and an annotation says what an update asks for.
func (e *Engine) clearStamps(desired *v1alpha1.Lock, request string) {
	if !e.isAdmitted {
		return
	}
	if request != v1alpha1.RequestRenewal {
		desired.Spec.Holder = ""
		desired.Spec.AcquireTime, desired.Spec.FencingToken = nil, nil
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AcquisitionAnnotation, string(uuid.NewUUID()))
	} else {
		desired.Spec.FencingToken = nil
	}
	desired.Spec.RenewTime, desired.Spec.ExpireTime = nil, nil
	if request != "" {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.RequestAnnotation, request)
	}
}

// sentGrant returns the grant that the write of desired will make. If admission stamps it, it
// expires at the latest a ttl after the write can still happen.
func (e *Engine) sentGrant(desired *v1alpha1.Lock) grant {
	sent := grantOf(desired)
	if e.isAdmitted && desired.Spec.TTL != nil {
		sent.lock.Spec.ExpireTime = new(v1alpha1.NewTimestamp(e.clock.Now().Add(lateWriteWindow + desired.Spec.TTL.Duration)))
	}
	return sent
}
