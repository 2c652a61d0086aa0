package doctor

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
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

// asked is what a namespace asks for by a label, and the policy that does it.
type asked struct {
	label, value string
	policy       policy
	// folder of config/ has the policy.
	folder string
}

var (
	// fence is the part of guards that the API server evaluates by itself.
	fence = asked{v1alpha1.GuardsLabel, v1alpha1.GuardsEnabled, policy{"-fence", "fenced objects accept writes with any token, and with none"}, "config/guards"}
	// jobCreators says who may create Jobs under locks.
	jobCreators = asked{"forrst.dev/job-locks", "restricted",
		policy{"-job-creators", "any user who may create Jobs there takes locks by them"}, "config/lock-policies"}
)

func named(webhooks []admissionregistrationv1.ValidatingWebhook, name string) (found []admissionregistrationv1.ValidatingWebhook) {
	for _, webhook := range webhooks {
		if webhook.Name == name {
			found = append(found, webhook)
		}
	}
	return found
}

// isOfOperator reports whether the webhook is one of an installation.
func isOfOperator(webhook string) bool {
	return webhook == guardWebhook || slices.ContainsFunc(needs, func(need need) bool { return need.name == webhook })
}

// isIn reports whether the policy is among those that are in force.
func (p policy) isIn(inForce []string) bool {
	return slices.ContainsFunc(inForce, func(name string) bool { return strings.HasSuffix(name, p.suffix) })
}

// isAskedBy reports whether a namespace with the labels asks for it.
func (a asked) isAskedBy(labels map[string]string) bool { return labels[a.label] == a.value }
