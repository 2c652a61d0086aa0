package engine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// grant is one grant of a lock that this engine made, or tried to make in a write that may have
// happened.
type grant struct {
	// lock holds the fields of the object that ending the grant and recording its end take. It is
	// not modified once other goroutines know the grant.
	lock *v1alpha1.Lock
	// isUnanswered says that the write may or may not have happened. UID and resourceVersion of
	// lock are then those of the object that it was to replace, if any.
	isUnanswered bool
	// stamped is when the write was stamped, if an acquire has sent it.
	stamped servertime.Reading
	// isEnding says that a delete of the grant went unanswered.
	isEnding bool
	// triesBefore makes this, if it is set, the grant of any try of the acquisition before that one, see [rules.SplitTry]:
	// another engine may have made it.
	triesBefore string
	grantAudit
}

func grantOf(lock *v1alpha1.Lock) grant {
	spec := &lock.Spec
	part := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lock.Namespace, Name: lock.Name, UID: lock.UID, ResourceVersion: lock.ResourceVersion,
			DeletionTimestamp: lock.DeletionTimestamp,
		},
		Spec: v1alpha1.LockSpec{
			Key: spec.Key, Scope: spec.Scope, Function: spec.Function, Owner: spec.Owner, Holder: spec.Holder, HolderUID: spec.HolderUID,
			AcquireTime: spec.AcquireTime.DeepCopy(), RenewTime: spec.RenewTime.DeepCopy(), ExpireTime: spec.ExpireTime.DeepCopy(),
		},
	}
	if token, err := lock.FencingToken(); err == nil {
		part.Spec.FencingToken = &token
	}
	for _, name := range []string{v1alpha1.AcquisitionAnnotation, v1alpha1.ConnectionAnnotation} {
		if id := lock.Annotations[name]; id != "" {
			metav1.SetMetaDataAnnotation(&part.ObjectMeta, name, id)
		}
	}
	return grant{lock: part}
}

func nameOf(lock *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}

// matches reports whether the object records this grant.
func (g grant) matches(lock *v1alpha1.Lock) bool {
	id, acquired := g.lock.Annotations[v1alpha1.AcquisitionAnnotation], g.lock.Spec.AcquireTime
	switch {
	case lock.Spec.Owner != g.lock.Spec.Owner:
		return false
	case g.triesBefore != "":
		acquisition, _ := rules.SplitTry(id)
		recorded, try := rules.SplitTry(lock.Annotations[v1alpha1.AcquisitionAnnotation])
		return recorded == acquisition && try < g.triesBefore
	case id != "" && lock.Annotations[v1alpha1.AcquisitionAnnotation] != id:
		return false
	case acquired == nil: // Admission stamps the grant, or another engine made it.
		return id != ""
	}
	return acquired.Equal(lock.Spec.AcquireTime)
}

// isRenewedIn reports whether the object, which records this grant, has been renewed since this
// engine last saw it: its holder knows of the grant, and relies on it.
func (g grant) isRenewedIn(lock *v1alpha1.Lock) bool {
	seen := g.lock.Spec.RenewTime
	if seen == nil { // Admission stamps the grant.
		seen = lock.Spec.AcquireTime
	}
	return !lock.Spec.RenewTime.Equal(seen)
}

// isProvenBy reports whether the proof permits ending or renewing the grant, and the grant has not
// expired.
func (g grant) isProvenBy(proof lock.Proof, now time.Time) bool {
	return rules.Release(g.lock, proof, now) == nil
}
