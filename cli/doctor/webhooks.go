package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// The webhooks of lock-operator, as config/webhook and config/guards name them.
const (
	lockWebhook  = "lock.forrst.dev"
	guardWebhook = "guard.forrst.dev"
)

// shortValidity is how long a certificate must be valid for at least: it is renewed earlier.
const shortValidity = 7 * 24 * time.Hour

// operatorCondition is the match condition that exempts the operator's own users.
const operatorCondition = "not-the-operator"

var quotedUser = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)

func judgeWebhooks(facts *Facts) []Finding {
	const check = "webhook"
	if err := facts.Mutating.Err; err != nil {
		return []Finding{skipped(check, "you may not read the webhook configurations: %v", err)}
	}
	webhooks := lockWebhooks(facts.Mutating.Value)
	switch len(webhooks) {
	case 0:
		return []Finding{failed(check, "no webhook configuration judges Locks: no user can take one with kubectl, and any user who may delete Locks can end them",
			"apply config/default of lock-operator")}
	case 1:
	default:
		return []Finding{failed(check, fmt.Sprintf("%d webhook configurations judge Locks", len(webhooks)),
			"delete that of the former installation: kubectl get mutatingwebhookconfigurations")}
	}
	webhook := webhooks[0]
	findings := judgeConfiguration(webhook)
	if len(findings) == 0 {
		findings = append(findings, ok(check, "the API server asks %s about Locks", addressOf(webhook.ClientConfig)))
	}
	findings = append(findings, judgeCertificate("certificate", webhook.ClientConfig, facts.Server)...)
	return append(findings, judgeExemptions(webhook, facts)...)
}

// judgeConfiguration says what of the configuration takes guarantees away.
func judgeConfiguration(webhook admissionregistrationv1.MutatingWebhook) []Finding {
	const check, apply = "webhook", "apply config/webhook of lock-operator again"
	var findings []Finding
	if ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
		findings = append(findings, failed(check, "its failurePolicy is not Fail: while it is away, any user who may delete Locks can end them", apply))
	}
	for _, operation := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete} {
		if !slices.ContainsFunc(webhook.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			isOperation := slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
			return isOperation && slices.Contains(rule.Resources, "locks")
		}) {
			findings = append(findings, failed(check, fmt.Sprintf("it is not asked about the operation %s of Locks", operation), apply))
		}
	}
	if selector := webhook.NamespaceSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		findings = append(findings, warning(check, "its namespaceSelector leaves namespaces out; locks there are not judged", apply))
	}
	return findings
}

// judgeCertificate says whether the API server can trust the webhook.
func judgeCertificate(check string, config admissionregistrationv1.WebhookClientConfig, now time.Time) []Finding {
	const do = "see why it is not renewed: the log of the controllers or, with cert-manager, kubectl get certificates -A"
	if len(config.CABundle) == 0 {
		return []Finding{failed(check, "the webhook configuration has no caBundle, so the API server does not trust the webhook", do)}
	}
	var last time.Time
	for rest := config.CABundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err == nil && authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	switch left := last.Sub(now); {
	case last.IsZero():
		return []Finding{failed(check, "the caBundle of the webhook configuration holds no certificate", do)}
	case left <= 0:
		return []Finding{failed(check, fmt.Sprintf("the authority in the caBundle has expired on %s", day(last)), do)}
	case left < shortValidity:
		return []Finding{warning(check, fmt.Sprintf("the authority in the caBundle expires on %s", day(last)), do)}
	default:
		return []Finding{ok(check, "the authority in the caBundle is valid until %s", day(last))}
	}
}

// judgeExemptions looks at the users whose writes the webhook does not judge.
func judgeExemptions(webhook admissionregistrationv1.MutatingWebhook, facts *Facts) []Finding {
	const check = "exempted users"
	users := exemptedUsers(webhook)
	switch {
	case len(users) == 0:
		return []Finding{warning(check, "the webhook configuration exempts no user: the operator's own writes fail while the webhook is away",
			"apply config/webhook, with config/identity if it is installed under other names")}
	case facts.Self.Err == nil && slices.Contains(users, facts.Self.Value.Username):
		return []Finding{warning(check, fmt.Sprintf("you are %s, whose writes of Locks nothing judges or audits", facts.Self.Value.Username),
			"use another account, and leave this one to the operator")}
	case facts.Missing.Err != nil:
		return []Finding{skipped(check, "you may not read the service accounts of the operator")}
	case len(facts.Missing.Value) > 0:
		return []Finding{failed(check, fmt.Sprintf("%s is exempted and does not exist: a user who may create it could write Locks that nothing judges", strings.Join(facts.Missing.Value, ", ")),
			"adapt the match conditions to where the operator runs")}
	default:
		return []Finding{ok(check, "the webhook leaves out the operator alone: %s", strings.Join(users, ", "))}
	}
}

// exemptedUsers returns the users whom the match condition of the operator leaves out.
func exemptedUsers(webhook admissionregistrationv1.MutatingWebhook) []string {
	var users []string
	for _, condition := range webhook.MatchConditions {
		if condition.Name != operatorCondition {
			continue
		}
		for _, match := range quotedUser.FindAllStringSubmatch(condition.Expression, -1) {
			users = append(users, match[1]+match[2])
		}
	}
	return users
}

func lockWebhooks(configurations []admissionregistrationv1.MutatingWebhookConfiguration) []admissionregistrationv1.MutatingWebhook {
	var found []admissionregistrationv1.MutatingWebhook
	for _, configuration := range configurations {
		for _, webhook := range configuration.Webhooks {
			if webhook.Name == lockWebhook {
				found = append(found, webhook)
			}
		}
	}
	return found
}

func guardWebhooks(configurations []admissionregistrationv1.ValidatingWebhookConfiguration) []admissionregistrationv1.ValidatingWebhook {
	var found []admissionregistrationv1.ValidatingWebhook
	for _, configuration := range configurations {
		for _, webhook := range configuration.Webhooks {
			if webhook.Name == guardWebhook {
				found = append(found, webhook)
			}
		}
	}
	return found
}

// addressOf says where the API server sends its questions.
func addressOf(config admissionregistrationv1.WebhookClientConfig) string {
	if config.Service != nil {
		return fmt.Sprintf("the service %s in namespace %s", config.Service.Name, config.Service.Namespace)
	}
	return ptr.Deref(config.URL, "an unknown address")
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }
