package events

import (
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	clientevents "k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/lock"
)

const (
	// ReasonForceReleased is the reason of the Event on a live lock that was ended by
	// somebody else than its holder.
	ReasonForceReleased = "ForceReleased"
	// ActionForceRelease is the action of that Event.
	ActionForceRelease = "ForceRelease"
)

// maxNoteBytes is the bound of an Event's note; the API server refuses a longer one.
const maxNoteBytes = 1024

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// ForceReleased returns what makes a Warning of each forced release, with who and why,
// and never the owner token. It does not block; an Event that cannot be written is
// dropped, as is usual.
func ForceReleased(recorder clientevents.EventRecorder) func(lock.ForcedRelease) {
	return func(released lock.ForcedRelease) {
		recorder.Eventf(released.Lock, nil, corev1.EventTypeWarning, ReasonForceReleased, ActionForceRelease, "%s", noteOf(released))
	}
}

func noteOf(released lock.ForcedRelease) string {
	by, reason := fmt.Sprintf("%q", released.User), released.Reason
	if released.User == "" {
		by = "an unknown user"
	}
	if reason == "" {
		reason = "no reason was given"
	}
	spec := released.Lock.Spec
	note := fmt.Sprintf("%s, held by %q, was released by force by %s: %s", spec.FullKey(), spec.Holder, by, reason)
	return truncate(strings.ToValidUTF8(note, "\uFFFD"), maxNoteBytes)
}

// truncate cuts valid UTF-8 between characters.
func truncate(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}
