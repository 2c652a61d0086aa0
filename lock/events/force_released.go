package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// ReasonForceReleased is the reason of the Event on a live lock that was ended by
	// somebody else than its holder.
	ReasonForceReleased = "ForceReleased"
	// ActionForceRelease is the action of that Event.
	ActionForceRelease = "ForceRelease"
)

// forcedReleases makes Events of records.
type forcedReleases struct {
	audit.Sink
	recorder clientevents.EventRecorder
}

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// OfForcedReleases returns a sink that makes a Warning of each record of a forced release,
// with who and why, in the namespace of the lock, and passes all records on. Nil means that
// there is nobody to pass them on to. An Event that cannot be written is dropped, as is
// usual.
func OfForcedReleases(recorder clientevents.EventRecorder, next audit.Sink) audit.Sink {
	return &forcedReleases{Sink: audit.OrNowhere(next), recorder: recorder}
}

// Record implements [audit.Sink].
func (f *forcedReleases) Record(record audit.Record) {
	if record.Event == audit.ForceReleased {
		lock := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
			Namespace: record.Namespace, Name: record.Lock, UID: types.UID(record.UID),
		}}
		f.recorder.Eventf(lock, nil, corev1.EventTypeWarning, ReasonForceReleased, ActionForceRelease, "%s", noteOf(&record))
	}
	f.Sink.Record(record)
}

// noteOf is bounded as a message of the audit is, which is the bound of a note, too.
func noteOf(record *audit.Record) string {
	by, reason := fmt.Sprintf("%q", record.Actor), record.Message
	if record.Actor == "" {
		by = "an unknown user"
	}
	if reason == "" {
		reason = "no reason was given"
	}
	key := v1alpha1.NewFullKey(record.Scope, record.Function, record.Key)
	return audit.Bounded(fmt.Sprintf("%s, held by %q, was released by force by %s: %s", key, record.Holder, by, reason))
}
