package doctor

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// callFailed is how the API server begins to say that it could not call a webhook.
const callFailed = "failed calling webhook"

// judgeAdmission says whether the webhook answers, and judges: by what became of two dry runs.
func judgeAdmission(facts *Facts) []Finding {
	const check = "a dry run"
	if facts.Admitted.Err != nil {
		return []Finding{judgeRefusal(check, facts)}
	}
	stamped := facts.Admitted.Value.Spec
	if facts.Self.Err == nil && stamped.Holder != facts.Self.Value.Username {
		return []Finding{failed(check, fmt.Sprintf("a new lock would be held by %q, and you are %q", stamped.Holder, facts.Self.Value.Username),
			"see which webhooks change Locks: kubectl get mutatingwebhookconfigurations")}
	}
	if facts.Forged.Err == nil {
		return []Finding{failed(check, "a new lock with a forged holder would be admitted",
			"see that no match condition leaves you out: kubectl get mutatingwebhookconfigurations -o yaml")}
	}
	if !apierrors.IsInvalid(facts.Forged.Err) && !apierrors.IsForbidden(facts.Forged.Err) {
		return []Finding{warning(check, "a new lock would be granted; what became of a forged one is not known: "+facts.Forged.Err.Error(), "run this again")}
	}
	return []Finding{ok(check, "the webhook answers: it would grant a new lock to %s, and refuses a forged one", stamped.Holder)}
}

// judgeRefusal says why a lock that every installation grants was not granted.
func judgeRefusal(check string, facts *Facts) Finding {
	err := facts.Admitted.Err
	text := err.Error()
	switch {
	case errors.Is(err, errMayNotCreate):
		return skipped(check, "you may not create locks in namespace %s", facts.Namespace)
	case strings.Contains(text, "are not stamped"):
		return failed(check, "no webhook judges Locks that you write",
			"install the webhook of lock-operator; if it is installed, see that its match conditions do not leave you out")
	case isUncalled(err, lockWebhook):
		return failed(check, "the webhook does not answer: "+withoutIntroduction(text), doAbout(text))
	case apierrors.IsNotFound(err):
		return failed(check, text, fmt.Sprintf("see that the namespace exists: kubectl get namespace %s", facts.Namespace))
	case apierrors.HasStatusCause(err, v1alpha1.CauseTypeNamespaceFull):
		return failed(check, text, "delete expired locks, or raise --max-locks-per-namespace")
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return warning(check, "a new lock is refused: "+text, "see the admission policies and quotas of the namespace; programs that lock are refused, too")
	default:
		return failed(check, "a new lock is not granted: "+text, "run this again; then see the logs of the API server")
	}
}

// isUncalled reports whether a write failed since the API server could not call the webhook.
func isUncalled(err error, webhook string) bool {
	return err != nil && strings.Contains(err.Error(), callFailed) && strings.Contains(err.Error(), webhook)
}

// doAbout says what to do about a webhook that cannot be called.
func doAbout(text string) string {
	switch {
	case strings.Contains(text, "connection refused"): // The address of a call has the word timeout in it.
		return "bring it back: kubectl get pods -A -l app.kubernetes.io/name=lock-operator"
	case strings.Contains(text, "x509"), strings.Contains(text, "tls:"):
		return "the API server does not trust its certificate; see the authorities that it trusts: kubectl get mutatingwebhookconfigurations -o yaml"
	case strings.Contains(text, "no endpoints available"), strings.Contains(text, "not found"):
		return "bring it back: kubectl get pods -n forrst-system -l app.kubernetes.io/component=webhook"
	case strings.Contains(text, "deadline exceeded"), strings.Contains(text, "timeout"):
		return "see that the network lets the API server reach it (network policies, firewall), and that it is not overloaded"
	default:
		return "bring it back: kubectl get pods -A -l app.kubernetes.io/name=lock-operator"
	}
}

// withoutIntroduction returns why the API server could not call a webhook, without which one.
func withoutIntroduction(text string) string {
	_, why, _ := strings.Cut(text, callFailed)
	if _, after, isNamed := strings.Cut(why, `": `); isNamed {
		return after
	}
	return strings.TrimLeft(why, " :")
}
