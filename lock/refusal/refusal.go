package refusal

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Refusal is why the API server does not carry out a write that its sender may make.
type Refusal struct {
	// Source is what refuses: a quota, a policy, a webhook, or a namespace that is ending. It is
	// the same for every write that it refuses.
	Source string
	// reason is what the API server says, up to the words of a policy or webhook.
	reason string
	// words are those.
	words string
}

// Reason returns what the API server says, without the given owner tokens, which the words of a
// policy may repeat.
func (r Refusal) Reason(owners ...string) string { return r.reason + redacted(r.words, owners) }

// ownWebhook begins what the API server says about a refusal by the operator's own webhook, which
// is about the lock.
const ownWebhook = `admission webhook "lock.forrst.dev" `

// ExceededQuota begins the reason of a quota that is used up.
const ExceededQuota = "exceeded quota: "

// Of recognises the refusals that do not pass by themselves. Kubernetes has no status causes for
// most of them, but the texts are those of its admission plugins. A text that is not known may be
// that of an API server that has only just started, as "not yet ready to handle request", and is
// none.
func Of(err error) (Refusal, bool) {
	reason := Explanation(err)
	until := func(end string) (Refusal, bool) {
		source, words, ok := strings.Cut(reason, end)
		return Refusal{Source: source, reason: source + end, words: words}, ok
	}
	isBy := func(source string) bool { return strings.HasPrefix(reason, source) }
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Refusal{Source: reason, reason: reason}, true
	case apierrors.HasStatusCause(err, v1alpha1.CauseTypeNamespaceFull):
		if _, after, ok := strings.Cut(reason, " is forbidden: "); ok {
			reason = after // Without the name of the lock.
		}
		return Refusal{Source: reason, reason: reason}, true
	case isBy(ExceededQuota), isBy("insufficient quota to consume: "):
		source, _, _ := strings.Cut(reason, ", ")
		return Refusal{Source: source, reason: reason}, true
	case isBy(ownWebhook):
		return Refusal{}, false
	case isBy(`admission webhook "`):
		return until(" denied the request")
	case isBy("ValidatingAdmissionPolicy '"), isBy("policy '"), isBy(`policy "`): // The latter are mutating ones.
		return until(" denied request: ")
	}
	return Refusal{}, false
}

// Explanation returns what the API server says, without the object that it says it about. It is
// empty if the error is no answer of the API server.
func Explanation(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	message := status.Status().Message
	if _, after, ok := strings.Cut(message, " is forbidden: "); ok && !strings.HasPrefix(message, "admission webhook ") {
		return after
	}
	return message
}

// IsConflict reports whether a conditional write failed because the object has changed. A policy or
// a webhook of a third party may refuse a write with the same code.
func IsConflict(err error) bool {
	_, isRefused := Of(err)
	return !isRefused && apierrors.IsConflict(err)
}

// IsNotFound reports whether a request failed because there is no such object, in the same way.
func IsNotFound(err error) bool {
	_, isRefused := Of(err)
	return !isRefused && apierrors.IsNotFound(err)
}
