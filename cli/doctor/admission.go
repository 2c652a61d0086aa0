package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock"
)

// nameLabel is on all objects of an installation, with the value operatorName, which the names of policies have in them unless
// a release of the chart replaces it.
const nameLabel, operatorName = "app.kubernetes.io/name", "lock-operator"

// policy is a ValidatingAdmissionPolicy of an installation. Its name ends in the suffix: an overlay or a release of the chart may
// put another prefix before it.
type policy struct {
	suffix string
	// without says what follows where it is not in force.
	without string
}

// policies are those of config/admission-policy, which each installation has.
var policies = []policy{
	{"-controllers", "the controllers may change any Job and delete any Pod"},
	{"-cronjobs", "a CronJob whose Jobs would not get their lock is found at its first run only"},
	{"-job-status", "a user who may write the status of Jobs can take a Job from its lock"},
	{"-jobs", "a Job that names a lock, and lacks the label or the webhook, runs without it unnoticed"},
}

// option is what a namespace asks for by a label, and the policy that does it.
type option struct {
	label, value string
	policy       policy
	// folder of config/ has the policy.
	folder string
}

var (
	// fence is the part of guards that the API server evaluates by itself.
	fence = option{v1alpha1.GuardsLabel, v1alpha1.GuardsEnabled, policy{"-fence", "fenced objects accept writes with any token, and with none"}, "config/guards"}
	// jobCreators says who may create Jobs under locks.
	jobCreators = option{"forrst.dev/job-locks", "restricted",
		policy{"-job-creators", "any user who may create Jobs there takes locks by them"}, "config/lock-policies"}
)

// judgePolicies looks at the policies that the API server evaluates by itself.
func (e *examination) judgePolicies(ctx context.Context) {
	const check = "policies"
	var installed admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if e.policiesErr = cmp.Or(e.cluster.List(ctx, &installed), e.cluster.List(ctx, &bindings)); e.policiesErr != nil {
		e.skipUnread(check, "the admission policies", e.policiesErr)
		return
	}
	isOfOperator := map[string]bool{}
	for _, policy := range installed.Items {
		isOfOperator[policy.Name] = policy.Labels[nameLabel] == operatorName
	}
	before := len(e.Report)
	for _, binding := range bindings.Items {
		name := binding.Spec.PolicyName
		isOfOperator, isThere := isOfOperator[name]
		switch {
		case !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		case isOfOperator:
			e.inForce = append(e.inForce, name)
		case !isThere && strings.Contains(name, operatorName):
			e.add(Fail, check, "apply the policy, such as by config/lock-policies of lock-operator, or delete the binding",
				"the binding %s of %s, which does not exist, has no effect", binding.Name, name)
		}
	}
	for _, policy := range policies {
		if !e.isInForce(policy) {
			e.add(Fail, check, "apply config/admission-policy of lock-operator again", "the policy %s%s is not in force: %s", operatorName, policy.suffix, policy.without)
		}
	}
	if e.lacks(jobCreators) {
		e.failUnmet(check, jobCreators)
	}
	if len(e.Report) == before {
		e.add(OK, check, "", "those of the installation are in force")
	}
}

func (e *examination) isInForce(policy policy) bool {
	return slices.ContainsFunc(e.inForce, func(name string) bool { return strings.HasSuffix(name, policy.suffix) })
}

// asksFor reports whether the namespace has the label of the option.
func (e *examination) asksFor(option option) bool { return e.labels[option.label] == option.value }

// lacks reports whether the namespace asks for the option, and its policy is known not to be in force.
func (e *examination) lacks(option option) bool {
	return e.asksFor(option) && e.policiesErr == nil && !e.isInForce(option.policy)
}

func (e *examination) failUnmet(check string, option option) {
	e.add(Fail, check, fmt.Sprintf("apply %s of lock-operator, or take the label away: %s", option.folder, e.Kubectl("label", "namespace", e.Namespace(), option.label+"-")),
		"namespace %s has the label %s=%s, and the policy %s%s is not in force: %s",
		e.Namespace(), option.label, option.value, operatorName, option.policy.suffix, option.policy.without)
}

// judgeDryRuns says whether the webhook answers, and judges: by what becomes of a new lock, and of one with a forged holder.
func (e *examination) judgeDryRuns(ctx context.Context) {
	const check = "a dry run"
	if missing, err := locks.MissingVerbs(ctx, e.cluster, e.Namespace(), "", "create"); err == nil && len(missing) > 0 {
		e.add(Skip, check, "", "you may not create locks in namespace %s", e.Namespace())
		return
	}
	var holder string
	if holder, e.refusal = e.tryLock(ctx, ""); e.refusal != nil {
		e.judgeRefusal(check, e.refusal)
		return
	}
	_, err := e.tryLock(ctx, "forged-by-kubectl-lock-doctor")
	switch {
	case e.user != "" && holder != e.user:
		e.add(Fail, check, "see which webhooks change Locks: "+e.Kubectl("get", "mutatingwebhookconfigurations"), "a new lock would be held by %q, and you are %q", holder, e.user)
	case err == nil:
		e.add(Fail, check, "see that no match condition leaves you out: "+e.Kubectl("get", "mutatingwebhookconfigurations", "-o", "yaml"), "a new lock with a forged holder would be admitted")
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		e.add(Warn, check, "run this again", "a new lock would be granted; what became of a forged one is not known: %v", err)
	default:
		e.add(OK, check, "", "the webhook answers: it would grant a new lock to %s, and refuses a forged one", holder)
	}
}

// tryLock creates, in a dry run, a lock that every installation grants unless the holder is forged, and returns who would hold it.
func (e *examination) tryLock(ctx context.Context, forged string) (holder string, err error) {
	key := "kubectl-lock:doctor:" + lock.NewOwner()
	tried := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace(), Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Holder: forged, TTL: &v1alpha1.Duration{Duration: time.Second}, Reason: "dry run of kubectl lock doctor"},
	}
	err = e.cluster.Create(ctx, tried, client.DryRunAll)
	return tried.Spec.Holder, err
}

// judgeRefusal says why a lock that every installation grants was not granted.
func (e *examination) judgeRefusal(check string, err error) {
	text := err.Error()
	switch {
	case strings.Contains(text, "are not stamped"):
		e.add(Fail, check, "install the webhook of lock-operator; if it is installed, see that its match conditions do not leave you out", "no webhook judges Locks that you write")
	case isUncalled(err, lockWebhook):
		_, why, _ := strings.Cut(text, callFailed)
		if _, after, isNamed := strings.Cut(why, `": `); isNamed {
			why = after
		}
		e.add(Fail, check, e.doAbout(why), "the webhook does not answer: %s", strings.TrimLeft(why, " :"))
	case apierrors.IsNotFound(err):
		e.add(Fail, check, "see that the namespace exists: "+e.Kubectl("get", "namespace", e.Namespace()), "%s", text)
	case apierrors.HasStatusCause(err, v1alpha1.CauseTypeNamespaceFull):
		e.add(Fail, check, "delete expired locks, or raise --max-locks-per-namespace", "%s", text)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		e.add(Warn, check, "see the admission policies and quotas of the namespace; programs that lock are refused, too", "a new lock is refused: %s", text)
	default:
		e.add(Fail, check, "run this again; then see the logs of the API server", "a new lock is not granted: %s", text)
	}
}

// callFailed is how the API server begins to say that it could not call a webhook.
const callFailed = "failed calling webhook"

// isUncalled reports whether a write failed since the API server could not call the webhook.
func isUncalled(err error, webhook string) bool {
	return err != nil && strings.Contains(err.Error(), callFailed) && strings.Contains(err.Error(), webhook)
}

// doAbout says what to do about a webhook that cannot be called.
func (e *examination) doAbout(why string) string {
	has := func(part string) bool { return strings.Contains(why, part) }
	switch {
	case has("x509"), has("tls:"):
		return "the API server does not trust its certificate; see the authorities that it trusts: " + e.Kubectl("get", "mutatingwebhookconfigurations", "-o", "yaml")
	case has("deadline exceeded"), has("i/o timeout"), has("Timeout exceeded"), has("handshake timeout"):
		return "see that the network lets the API server reach it (network policies, firewall), and that it is not overloaded"
	}
	return "bring it back: " + e.Kubectl("get", "pods", "-A", "-l", nameLabel+"="+operatorName)
}

// judgeGuards says whether the namespace has opted in to guards, and they are in force then.
func (e *examination) judgeGuards(ctx context.Context) {
	const check = "guards"
	if e.webhooksErr != nil {
		e.skipUnread(check, "the webhook configurations", e.webhooksErr)
		return
	}
	webhooks, isAsked, namespace := len(e.named(guardWebhook)), e.asksFor(fence), e.Namespace()
	switch {
	case webhooks == 0 && isAsked:
		e.add(Fail, check, "apply config/guards of lock-operator, or take the label away: "+e.Kubectl("label", "namespace", namespace, fence.label+"-"),
			"namespace %s has opted in, and no webhook configuration has %s: no object there is guarded", namespace, guardWebhook)
	case webhooks == 0:
		e.add(OK, check, "", "they are not installed, so a freeze is refused")
	case webhooks > 1:
		e.add(Warn, check, "delete those of former installations", "%d webhook configurations ask about guarded objects", webhooks)
	case e.lacks(fence):
		e.failUnmet(check, fence)
	case e.labelsErr != nil:
		e.add(OK, check, "", "they are installed; you may not read whether namespace %s has opted in", namespace)
	case !isAsked:
		e.add(OK, check, "", "they are installed, and namespace %s has not opted in: %s", namespace, e.Kubectl("label", "namespace", namespace, fence.label+"="+fence.value))
	case isUncalled(e.refusal, lockWebhook), isUncalled(e.tryGuarded(ctx), guardWebhook):
		e.add(Fail, check, "bring the webhook back; docs/runbooks.md says what to do until then",
			"they are in force in namespace %s, where every write of a listed resource fails while the webhook does not answer", namespace)
	default:
		e.add(OK, check, "", "they are installed, and in force in namespace %s", namespace)
	}
}

// tryGuarded creates, in a dry run, an object that the webhook of guards is asked about.
func (e *examination) tryGuarded(ctx context.Context) error {
	tried := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace(), Name: "kubectl-lock-doctor-" + lock.NewOwner()}}
	return e.cluster.Create(ctx, tried, client.DryRunAll)
}
