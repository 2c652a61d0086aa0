package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// stampedLater is the placeholder for a holder that admission will stamp.
const stampedLater = "stamped-on-admission"

// prepare makes next acceptable to admission, if the engine's writes pass it: admission sets the
// stamps, and an annotation says what an update asks for.
func (e *Engine) prepare(next *v1alpha1.Lock, request string) {
	if !e.isAdmitted {
		return
	}
	if request != v1alpha1.RequestRenewal {
		next.Spec.Holder = ""
		next.Spec.AcquireTime, next.Spec.FencingToken = nil, nil
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.AcquisitionAnnotation, string(uuid.NewUUID()))
	} else {
		next.Spec.FencingToken = nil
	}
	next.Spec.RenewTime, next.Spec.ExpireTime = nil, nil
	if request != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.RequestAnnotation, request)
	}
}

// sentGrant returns the grant that the write of next will make. If admission stamps it, it expires
// at the latest a ttl after the write can still happen.
func (e *Engine) sentGrant(next *v1alpha1.Lock) grant {
	sent := grantOf(next)
	if e.isAdmitted && next.Spec.TTL != nil {
		sent.lock.Spec.ExpireTime = new(v1alpha1.NewTimestamp(e.clock.Now().Add(lateWriteWindow + next.Spec.TTL.Duration)))
	}
	return sent
}
