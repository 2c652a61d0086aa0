package doctor

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	{
		name: lockWebhook, resource: "locks", failurePolicy: admissionregistrationv1.Fail,
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
		about:      "Locks", without: "no user can take one with kubectl, and any user who may delete Locks can end them",
	},
	{
		name: "job.forrst.dev", resource: "jobs", failurePolicy: admissionregistrationv1.Fail,
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		about:      "Jobs under locks", without: "no new Job waits for its lock, and any user who may change Jobs can start one that waits",
	},
	{
		name: "audit.lock.forrst.dev", resource: "locks", failurePolicy: admissionregistrationv1.Ignore,
		operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
		about:      "Locks that Kubernetes deletes", without: "the audit has no record of them",
	},
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
	for _, configuration := range validating.Items {
		e.webhooks = append(e.webhooks, configuration.Webhooks...)
	}
	for _, configuration := range mutating.Items {
		for _, webhook := range configuration.Webhooks {
			e.webhooks = append(e.webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: webhook.Name, ClientConfig: webhook.ClientConfig, Rules: webhook.Rules, FailurePolicy: webhook.FailurePolicy,
				NamespaceSelector: webhook.NamespaceSelector, MatchConditions: webhook.MatchConditions,
			})
		}
	}
	for _, need := range needs {
		switch webhooks := e.named(need.name); len(webhooks) {
		case 0:
			e.add(Fail, check, "apply config/default of lock-operator", "no webhook configuration has %s, which judges %s: %s", need.name, need.about, need.without)
		case 1:
			e.judgeWebhook(check, need, &webhooks[0])
		default:
			e.add(Fail, check, "delete that of the former installation: "+e.Kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations"),
				"%d webhook configurations have %s", len(webhooks), need.name)
		}
	}
	var judged []string
	for _, webhook := range e.webhooks {
		isOurs := webhook.Name == guardWebhook || slices.ContainsFunc(needs, func(need need) bool { return need.name == webhook.Name })
		if bundle := string(webhook.ClientConfig.CABundle); isOurs && !slices.Contains(judged, bundle) {
			judged = append(judged, bundle)
			e.judgeAuthority(webhook.ClientConfig.CABundle)
		}
	}
	if webhooks := e.named(lockWebhook); len(webhooks) == 1 {
		e.judgeExemptions(ctx, &webhooks[0])
	}
}

func (e *examination) named(name string) []admissionregistrationv1.ValidatingWebhook {
	return slices.DeleteFunc(slices.Clone(e.webhooks), func(webhook admissionregistrationv1.ValidatingWebhook) bool { return webhook.Name != name })
}

// judgeWebhook says whether the API server asks the webhook about all that it is needed for.
func (e *examination) judgeWebhook(check string, need need, webhook *admissionregistrationv1.ValidatingWebhook) {
	const apply = "apply config/webhook of lock-operator again"
	before := len(e.Report)
	if failurePolicy := ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail); failurePolicy != need.failurePolicy {
		e.add(Fail, check, apply, "the failurePolicy of %s is %s, and not %s", need.name, failurePolicy, need.failurePolicy)
	}
	for _, operation := range need.operations {
		if !slices.ContainsFunc(webhook.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			isOperation := slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
			return isOperation && slices.Contains(rule.Resources, need.resource)
		}) {
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

// judgeAuthority says whether the API server can trust a webhook.
func (e *examination) judgeAuthority(bundle []byte) {
	authorities, _ := cert.ParseCertsPEM(bundle)
	if len(authorities) == 0 {
		e.add(Fail, "certificate", doRenew, "the webhook configuration has no caBundle with a certificate, so the API server does not trust the webhook")
		return
	}
	var last time.Time
	for _, authority := range authorities {
		if authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	e.judgeValidity("the authority in the caBundle", last, e.Now())
}

// judgeExemptions looks at the users whose writes the webhook does not judge.
func (e *examination) judgeExemptions(ctx context.Context, webhook *admissionregistrationv1.ValidatingWebhook) {
	const check = "exempted users"
	var users, missing []string
	var unread error
	for _, condition := range webhook.MatchConditions {
		if condition.Name != operatorCondition {
			continue
		}
		for _, match := range quotedUser.FindAllStringSubmatch(condition.Expression, -1) {
			users = append(users, match[1])
			namespace, name, err := serviceaccount.SplitUsername(match[1])
			if err != nil {
				continue // Other users cannot be made in the cluster.
			}
			e.operatorNamespace = namespace
			err = e.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ServiceAccount{})
			if apierrors.IsNotFound(err) {
				missing = append(missing, match[1])
			} else if err != nil {
				unread = err
			}
		}
	}
	switch {
	case len(users) == 0:
		e.add(Warn, check, "apply config/webhook, with config/identity if it is installed under other names",
			"the webhook configuration exempts no user: the operator's own writes fail while the webhook is away")
	case slices.Contains(users, e.user):
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

// shortValidity is how long a certificate must be valid for at least: it is renewed earlier.
const shortValidity = 7 * 24 * time.Hour

const doRenew = "see why it is not renewed: docs/certificates.md, When something fails"

// judgeValidity says whether the certificate that has this end is valid for long enough.
func (r *Report) judgeValidity(what string, notAfter, now time.Time) {
	const check = "certificate"
	switch left := notAfter.Sub(now); {
	case left <= 0:
		r.add(Fail, check, doRenew, "%s has expired on %s", what, day(notAfter))
	case left < shortValidity:
		r.add(Warn, check, doRenew, "%s expires on %s", what, day(notAfter))
	default:
		r.add(OK, check, "", "%s is valid until %s", what, day(notAfter))
	}
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }
