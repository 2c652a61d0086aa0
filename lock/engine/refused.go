package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// requestError translates the error of a failed request for the caller of an operation. Owners are
// the owner tokens in the objects of the request, which the text of a policy may repeat.
func (e *Engine) requestError(operation string, err error, owners ...string) error {
	refused, isRefused := refusalOf(err)
	switch {
	case !definitelyNotApplied(err), neverSent(err), apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, err)
	case isRefused:
		reason := refused.reasonWithout(owners)
		if e.logged.isDue(refused.source, servertime.Timers(e.clock).Now()) {
			e.log.Info("The cluster refuses locks", "source", refused.source, "operation", operation, "reason", reason)
		}
		return fmt.Errorf("%s: %w", operation, &lock.RefusedError{Reason: reason})
	case !e.isAdmitted && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		// Not the caller's fault: a freshly started API server refuses the operator until it has
		// loaded the roles.
		if e.logged.isDue(explanation(err), servertime.Timers(e.clock).Now()) {
			e.log.Error(err, "The API server refuses what the roles of the operator should allow", "operation", operation)
		}
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, err)
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrForbidden, err)
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrInvalid, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// refusal is why the API server does not carry out a write that its sender may make.
type refusal struct {
	// source is what refuses: a quota, a policy, a webhook, or a namespace that is ending. It is
	// the same for every write that it refuses.
	source string
	// reason is what the API server says, up to the words of a policy or webhook.
	reason string
	// words are those.
	words string
}

// reasonWithout returns the whole reason without owner tokens.
func (r refusal) reasonWithout(owners []string) string {
	words := r.words
	for _, owner := range owners {
		if owner == "" {
			continue
		}
		for _, spelling := range spellings(owner) {
			words = strings.ReplaceAll(words, spelling, "[owner]")
		}
	}
	return r.reason + words
}

// spellings returns the token as it is, and as a quoted string and JSON spell it.
func spellings(owner string) []string {
	inside := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	all := []string{owner, inside(strconv.Quote(owner))}
	if asJSON, err := json.Marshal(owner); err == nil {
		all = append(all, inside(string(asJSON)))
	}
	return all
}

// ownWebhook begins what the API server says about a refusal by the operator's own webhook, which
// is about the lock.
const ownWebhook = `admission webhook "lock.forrst.dev" `

// refusalOf recognises the refusals that do not pass by themselves. Kubernetes has no status
// causes for most of them, but the texts are those of its admission plugins. A text that is not
// known may be that of an API server that has only just started, as "not yet ready to handle
// request", and is none.
func refusalOf(err error) (refusal, bool) {
	reason := explanation(err)
	until := func(end string) (refusal, bool) {
		source, words, ok := strings.Cut(reason, end)
		return refusal{source: source, reason: source + end, words: words}, ok
	}
	isBy := func(source string) bool { return strings.HasPrefix(reason, source) }
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return refusal{source: reason, reason: reason}, true
	case isBy(exceededQuota), isBy("insufficient quota to consume: "):
		source, _, _ := strings.Cut(reason, ", ")
		return refusal{source: source, reason: reason}, true
	case isBy(ownWebhook):
		return refusal{}, false
	case isBy(`admission webhook "`):
		return until(" denied the request")
	case isBy("ValidatingAdmissionPolicy '"), isBy("policy '"), isBy(`policy "`): // The latter are mutating ones.
		return until(" denied request: ")
	}
	return refusal{}, false
}

// maxQuotaLag is for how long after a delete a quota may still count the lock.
const maxQuotaLag = 5 * time.Second

const exceededQuota = "exceeded quota: "

// isQuota reports whether the error for a caller tells of a quota.
func isQuota(err error) bool {
	refused, ok := errors.AsType[*lock.RefusedError](err)
	return ok && strings.HasPrefix(refused.Reason, exceededQuota)
}

// explanation returns what the API server says, without the object that it says it about.
func explanation(err error) string {
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

const (
	// logAgainAfter is how often a cause is logged that lasts.
	logAgainAfter = 10 * time.Minute
	// maxLogged bounds how many causes are remembered.
	maxLogged = 1000
)

// logged remembers which causes of failures are in the log: every request of every caller may meet
// them. Safe for concurrent use.
type logged struct {
	mu sync.Mutex
	at map[string]time.Time
}

// isDue reports whether a cause is to be logged, and records that it was.
func (l *logged) isDue(cause string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at[cause]; ok && now.Sub(at) < logAgainAfter {
		return false
	}
	if l.at == nil || len(l.at) >= maxLogged {
		l.at = map[string]time.Time{}
	}
	l.at[cause] = now
	return true
}
