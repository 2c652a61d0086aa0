package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock"
)

// need is a webhook of an installation.
type need struct {
	name, resource string
	operations     []admissionregistrationv1.OperationType
	failurePolicy  admissionregistrationv1.FailurePolicyType
	// about says what the API server asks it about, and without what follows where nothing does.
	about, without string
}

// The webhooks of lock-operator that are looked at one by one, as config/webhook and config/guards name them.
const (
	lockWebhook  = "lock.forrst.dev"
	guardWebhook = "guard.forrst.dev"
)

// needs are the webhooks of config/webhook, which each installation has. That of config/guards is asked for by namespaces.
var needs = []need{
	{lockWebhook, "locks", []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"}, admissionregistrationv1.Fail,
		"Locks", "no user can take one with kubectl, and any user who may delete Locks can end them"},
	{"job.forrst.dev", "jobs", []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, admissionregistrationv1.Fail,
		"Jobs under locks", "no new Job waits for its lock, and any user who may change Jobs can start one that waits"},
	{"audit.lock.forrst.dev", "locks", []admissionregistrationv1.OperationType{"DELETE"}, admissionregistrationv1.Ignore,
		"Locks that Kubernetes deletes", "the audit has no record of them"},
}

// operatorCondition is the match condition of the webhook that exempts the operator's own users.
const operatorCondition = "not-the-operator"

var quotedUser = regexp.MustCompile(`['"]([^'"]*)['"]`)

// judgeWebhooks says whether the API server asks the webhooks that the installation needs, and can trust them.
func (e *examination) judgeWebhooks(ctx context.Context) {
	const check = "webhook"
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if e.webhooksErr = cmp.Or(e.cluster.List(ctx, &mutating), e.cluster.List(ctx, &validating)); e.webhooksErr != nil {
		e.skipUnread(check, "the webhook configurations", e.webhooksErr)
		return
	}
	e.webhooks = map[string][]admissionregistrationv1.ValidatingWebhook{}
	for _, configuration := range validating.Items {
		for _, webhook := range configuration.Webhooks {
			e.webhooks[webhook.Name] = append(e.webhooks[webhook.Name], webhook)
		}
	}
	for _, configuration := range mutating.Items {
		for _, webhook := range configuration.Webhooks {
			e.webhooks[webhook.Name] = append(e.webhooks[webhook.Name], admissionregistrationv1.ValidatingWebhook{
				ClientConfig: webhook.ClientConfig, Rules: webhook.Rules, FailurePolicy: webhook.FailurePolicy,
				NamespaceSelector: webhook.NamespaceSelector, MatchConditions: webhook.MatchConditions,
			})
		}
	}
	ours := slices.Clone(e.webhooks[guardWebhook])
	for _, need := range needs {
		webhooks := e.webhooks[need.name]
		ours = append(ours, webhooks...)
		switch len(webhooks) {
		case 0:
			e.add(Fail, check, "apply config/default of lock-operator", "no webhook configuration has %s, which judges %s: %s", need.name, need.about, need.without)
		case 1:
			e.judgeWebhook(check, need, &webhooks[0])
		default:
			e.add(Fail, check, "delete that of the former installation: "+e.Kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations"),
				"%d webhook configurations have %s", len(webhooks), need.name)
		}
	}
	bundles := sets.New[string]()
	for _, webhook := range ours {
		bundles.Insert(string(webhook.ClientConfig.CABundle))
	}
	for _, bundle := range sets.List(bundles) {
		authorities, _ := cert.ParseCertsPEM([]byte(bundle))
		if len(authorities) == 0 {
			e.add(Fail, "certificate", doRenew, "the webhook configuration has no caBundle with a certificate, so the API server does not trust the webhook")
			continue
		}
		last := slices.MaxFunc(authorities, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		e.judgeValidity("the authority in the caBundle", last.NotAfter, e.Now())
	}
	for _, webhook := range e.webhooks[lockWebhook] {
		for _, user := range exemptedBy(&webhook) {
			if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
				e.operatorNamespace = namespace
			}
		}
	}
	if webhooks := e.webhooks[lockWebhook]; len(webhooks) == 1 {
		e.judgeExemptions(ctx, exemptedBy(&webhooks[0]))
	}
}

// exemptedBy returns the users whose writes the webhook does not judge.
func exemptedBy(webhook *admissionregistrationv1.ValidatingWebhook) (users []string) {
	for _, condition := range webhook.MatchConditions {
		if condition.Name != operatorCondition {
			continue
		}
		for _, match := range quotedUser.FindAllStringSubmatch(condition.Expression, -1) {
			users = append(users, match[1])
		}
	}
	return users
}

// judgeWebhook says whether the API server asks the webhook about all that it is needed for.
func (e *examination) judgeWebhook(check string, need need, webhook *admissionregistrationv1.ValidatingWebhook) {
	const apply = "apply config/webhook of lock-operator again"
	before := len(e.Report)
	if failurePolicy := ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail); failurePolicy != need.failurePolicy {
		e.add(Fail, check, apply, "the failurePolicy of %s is %s, and not %s", need.name, failurePolicy, need.failurePolicy)
	}
	var asked []admissionregistrationv1.OperationType
	for _, rule := range webhook.Rules {
		if slices.Contains(rule.Resources, need.resource) {
			asked = append(asked, rule.Operations...)
		}
	}
	for _, operation := range need.operations {
		if !slices.Contains(asked, operation) && !slices.Contains(asked, admissionregistrationv1.OperationAll) {
			e.add(Fail, check, apply, "%s is not asked about the operation %s of %s", need.name, operation, need.resource)
		}
	}
	if selector := webhook.NamespaceSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		e.add(Warn, check, apply, "the namespaceSelector of %s leaves namespaces out; %s there are not judged", need.name, need.resource)
	}
	if len(e.Report) == before {
		address := ptr.Deref(webhook.ClientConfig.URL, "an unknown address")
		if service := webhook.ClientConfig.Service; service != nil {
			address = fmt.Sprintf("the service %s in namespace %s", service.Name, service.Namespace)
		}
		e.add(OK, check, "", "the API server asks %s about %s", address, need.about)
	}
}

// shortValidity is how long a certificate must be valid for at least: it is renewed earlier.
const shortValidity = 7 * 24 * time.Hour

const doRenew = "see why it is not renewed: docs/certificates.md, When something fails"

// judgeValidity says whether the certificate that has this end is valid for long enough.
func (r *Report) judgeValidity(what string, notAfter, now time.Time) {
	const check = "certificate"
	day := notAfter.UTC().Format(time.DateOnly)
	switch left := notAfter.Sub(now); {
	case left <= 0:
		r.add(Fail, check, doRenew, "%s has expired on %s", what, day)
	case left < shortValidity:
		r.add(Warn, check, doRenew, "%s expires on %s", what, day)
	default:
		r.add(OK, check, "", "%s is valid until %s", what, day)
	}
}

// judgeExemptions looks at the users whose writes the webhook does not judge.
func (e *examination) judgeExemptions(ctx context.Context, users []string) {
	const check = "exempted users"
	var missing []string
	var unread error
	for _, user := range users {
		namespace, name, err := serviceaccount.SplitUsername(user)
		if err != nil {
			continue // Other users cannot be made in the cluster.
		}
		err = e.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ServiceAccount{})
		if apierrors.IsNotFound(err) {
			missing = append(missing, user)
		} else if err != nil {
			unread = err
		}
	}
	switch {
	case len(users) == 0:
		e.add(Warn, check, "apply config/webhook, with config/identity if it is installed under other names",
			"the webhook configuration exempts no user: the operator's own writes fail while the webhook is away")
	case e.user != "" && slices.Contains(users, e.user):
		e.add(Warn, check, "use another account, and leave this one to the operator", "you are %s, whose writes of Locks nothing judges or audits", e.user)
	case unread != nil:
		e.skipUnread(check, "the service accounts of the operator", unread)
	case len(missing) > 0:
		e.add(Fail, check, "adapt the match conditions to where the operator runs",
			"%s is exempted and does not exist: a user who may create it could write Locks that nothing judges", strings.Join(missing, ", "))
	default:
		e.add(OK, check, "", "the webhook leaves out the operator alone: %s", strings.Join(users, ", "))
	}
}

// nameLabel is on all objects of an installation, with the value operatorName, which the names of policies have in them unless
// a release of the chart replaces it.
const nameLabel, operatorName = "app.kubernetes.io/name", "lock-operator"

// policy is a ValidatingAdmissionPolicy. Its name ends in the suffix: an overlay or a release of the chart may put another prefix
// before it.
type policy struct {
	suffix string
	// without says what follows where it is not in force.
	without string
	// folder of config/ has the policy.
	folder string
	// label, with the value, is how a namespace asks for it; empty for a policy that each installation has.
	label, value string
}

// policies are those that are judged by themselves.
var policies = []policy{
	{"-controllers", "the controllers may change any Job and delete any Pod", "config/admission-policy", "", ""},
	{"-cronjobs", "a CronJob whose Jobs would not get their lock is found at its first run only", "config/admission-policy", "", ""},
	{"-job-status", "a user who may write the status of Jobs can take a Job from its lock", "config/admission-policy", "", ""},
	{"-jobs", "a Job that names a lock, and lacks the label or the webhook, runs without it unnoticed", "config/admission-policy", "", ""},
	{"-job-creators", "any user who may create Jobs there takes locks by them", "config/lock-policies", "forrst.dev/job-locks", "restricted"},
}

// fence is the part of guards that the API server evaluates by itself.
var fence = policy{"-fence", "fenced objects accept writes with any token, and with none", "config/guards", v1alpha1.GuardsLabel, v1alpha1.GuardsEnabled}

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
		if e.lacks(policy) {
			e.failLacking(check, policy)
		}
	}
	if len(e.Report) == before {
		e.add(OK, check, "", "those of the installation are in force")
	}
}

// asksFor reports whether the namespace or any installation is to have the policy.
func (e *examination) asksFor(policy policy) bool {
	return policy.label == "" || e.labels[policy.label] == policy.value
}

// lacks reports whether a policy that is asked for is known not to be in force.
func (e *examination) lacks(policy policy) bool {
	isInForce := slices.ContainsFunc(e.inForce, func(name string) bool { return strings.HasSuffix(name, policy.suffix) })
	return e.asksFor(policy) && e.policiesErr == nil && !isInForce
}

func (e *examination) failLacking(check string, policy policy) {
	do, asks := fmt.Sprintf("apply %s of lock-operator again", policy.folder), ""
	if policy.label != "" {
		do = fmt.Sprintf("apply %s of lock-operator, or take the label away: %s", policy.folder, e.Kubectl("label", "namespace", e.Namespace(), policy.label+"-"))
		asks = fmt.Sprintf("namespace %s has the label %s=%s, and ", e.Namespace(), policy.label, policy.value)
	}
	e.add(Fail, check, do, "%sthe policy %s%s is not in force: %s", asks, operatorName, policy.suffix, policy.without)
}

// judgeDryRuns says whether the webhook answers, and judges: by what becomes of a new lock, and of one with a forged holder.
func (e *examination) judgeDryRuns(ctx context.Context) {
	const check = "a dry run"
	if missing, err := locks.MissingVerbs(ctx, e.cluster, e.Namespace(), "", "create"); err == nil && len(missing) > 0 {
		e.add(Skip, check, "", "you may not create locks in namespace %s", e.Namespace())
		return
	}
	if e.refusal = e.tryLock(ctx, ""); e.refusal != nil {
		e.judgeRefusal(check, e.refusal)
		return
	}
	switch err := e.tryLock(ctx, "forged-by-kubectl-lock-doctor"); {
	case err == nil:
		e.add(Fail, check, "see that no match condition leaves you out: "+e.Kubectl("get", "mutatingwebhookconfigurations", "-o", "yaml"), "a new lock with a forged holder would be admitted")
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		e.add(Warn, check, "run this again", "a new lock would be granted; what became of a forged one is not known: %v", err)
	default:
		e.add(OK, check, "", "the webhook answers: it would grant a new lock to %s, and refuses a forged one", cmp.Or(e.user, "you"))
	}
}

// tryLock creates, in a dry run, a lock that every installation grants unless it names a forged holder.
func (e *examination) tryLock(ctx context.Context, forged string) error {
	key := "kubectl-lock:doctor:" + lock.NewOwner()
	tried := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace(), Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Holder: forged, TTL: &v1alpha1.Duration{Duration: time.Second}, Reason: "dry run of kubectl lock doctor"},
	}
	return e.cluster.Create(ctx, tried, client.DryRunAll)
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
	case has("deadline exceeded"), has("i/o timeout"), has("Timeout exceeded"), has("handshake timeout"), has("connection timed out"), has("no route to host"):
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
	webhooks, isAsked, namespace := len(e.webhooks[guardWebhook]), e.asksFor(fence), e.Namespace()
	isAway := isUncalled(e.refusal, lockWebhook)
	if webhooks > 0 && isAsked && !isAway {
		guarded := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubectl-lock-doctor-" + lock.NewOwner()}}
		isAway = isUncalled(e.cluster.Create(ctx, guarded, client.DryRunAll), guardWebhook)
	}
	switch {
	case webhooks == 0 && isAsked:
		e.add(Fail, check, "apply config/guards of lock-operator, or take the label away: "+e.Kubectl("label", "namespace", namespace, fence.label+"-"),
			"namespace %s has opted in, and no webhook configuration has %s: no object there is guarded", namespace, guardWebhook)
	case webhooks > 1:
		e.add(Warn, check, "delete that of the former installation: "+e.Kubectl("get", "validatingwebhookconfigurations"),
			"%d webhook configurations have %s: where one of them does not answer, writes of guarded objects fail", webhooks, guardWebhook)
	case webhooks == 0:
		e.add(OK, check, "", "they are not installed, so a freeze is refused")
	case e.lacks(fence):
		e.failLacking(check, fence)
	case e.labelsErr != nil:
		e.add(OK, check, "", "they are installed; you may not read whether namespace %s has opted in", namespace)
	case !isAsked:
		e.add(OK, check, "", "they are installed, and namespace %s has not opted in: %s", namespace, e.Kubectl("label", "namespace", namespace, fence.label+"="+fence.value))
	case isAway:
		e.add(Fail, check, "bring the webhook back; docs/runbooks.md says what to do until then",
			"they are in force in namespace %s, where every write of a listed resource fails while the webhook does not answer", namespace)
	default:
		e.add(OK, check, "", "they are installed, and in force in namespace %s", namespace)
	}
}
