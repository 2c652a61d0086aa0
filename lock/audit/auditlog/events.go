package auditlog

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
	// ReasonForceReleased is the reason of the Event on a held lock that was ended by force.
	ReasonForceReleased = "ForceReleased"
	// ActionForceRelease is the action of that Event.
	ActionForceRelease = "ForceRelease"
)

// eventSink makes Events of forced releases.
type eventSink struct {
	audit.Sink
	recorder clientevents.EventRecorder
}

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// WithEvents returns a sink that passes all records to next, which may be nil, and makes an Event
// of type Warning for each forced release, in the namespace of the lock, with the actor and the
// reason; none for a dry run. Frequent facts such as grants and renewals make no Event: each would be one more write.
// An Event that cannot be written is dropped. It is about a version of the lock, since the recorder counts Events about
// the same object in one, with the note of the first. Two forced releases have their reasons in two versions.
func WithEvents(recorder clientevents.EventRecorder, next audit.Sink) audit.Sink {
	return &eventSink{Sink: audit.OrNowhere(next), recorder: recorder}
}

// Record implements [audit.Sink].
func (s *eventSink) Record(record audit.Record) {
	if record.Event == audit.ForceReleased && !record.DryRun {
		lock := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
			Namespace: record.Namespace, Name: record.Lock, UID: types.UID(record.UID), ResourceVersion: record.ResourceVersion,
		}}
		s.recorder.Eventf(lock, nil, corev1.EventTypeWarning, ReasonForceReleased, ActionForceRelease, "%s", noteOf(&record))
	}
	s.Sink.Record(record)
}

// noteOf is bounded like an audit message, which is also the bound of a note.
func noteOf(record *audit.Record) string {
	what, by, reason := "was released", fmt.Sprintf("%q", record.Actor), record.Message
	if record.Admitted {
		what = "is being released"
	}
	if record.Actor == "" {
		by = "an unknown user"
	}
	if reason == "" {
		reason = "no reason was given"
	}
	key := v1alpha1.NewFullKey(record.Scope, record.Function, record.Key)
	return audit.Bounded(fmt.Sprintf("%s, held by %q, %s by force by %s: %s", key, record.Holder, what, by, reason))
}
