package doctor

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
)

const (
	// oldestMinor is the oldest version 1.x of Kubernetes that lock-operator supports (docs/design.md, section 19).
	oldestMinor = 34
	// toleratedDifference is how far clocks may differ before what people read and type is wrong. The difference is known
	// to about a second.
	toleratedDifference = 3 * time.Second
	// shortValidity is how long a certificate must be valid for at least: it is renewed earlier.
	shortValidity = 7 * 24 * time.Hour
)

// neededFields are fields that this version of the service stores.
var neededFields = []string{"guards", "holderUID"}

// Judge says what the facts mean.
func Judge(facts *Facts) Report {
	report := &Report{}
	info := facts.Kubernetes.Value
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	switch check := "api server"; {
	case facts.Kubernetes.Err != nil:
		what, do := failure.Contact(facts.Kubernetes.Err)
		report.fail(check, do+"; compare with "+facts.Kubectl("get", "namespaces"), "%s: %v", what, facts.Kubernetes.Err)
		return *report
	case err == nil && info.Major == "1" && minor < oldestMinor:
		report.fail(check, fmt.Sprintf("upgrade the cluster to 1.%d or later", oldestMinor), "Kubernetes is %s, and lock-operator needs 1.%d", info.GitVersion, oldestMinor)
	default:
		report.ok(check, "Kubernetes %s answers; this is kubectl-lock %s", info.GitVersion, facts.Program)
	}
	report.judgeClock(facts.Local, facts.Server)
	if !report.judgeDefinition(facts) {
		return *report // All others follow from that.
	}
	isThere := !apierrors.IsNotFound(facts.Labels.Err)
	if isThere {
		report.judgeRights(facts)
	} else {
		report.fail("namespace", "name one that exists with -n: "+facts.Kubectl("get", "namespaces"),
			"namespace %s does not exist, so rights and admission were not tried there", facts.Namespace)
	}
	report.judgeWebhooks(facts)
	report.judgePolicies(facts)
	if isThere {
		report.judgeAdmission(facts)
	}
	report.judgeDeployments(facts)
	report.judgeIssued(facts)
	if isThere {
		report.judgeGuards(facts)
	}
	return *report
}

func (r *Report) judgeClock(local, server time.Time) {
	const check = "clock"
	difference := local.Sub(server)
	if difference.Abs() <= toleratedDifference {
		r.ok(check, "this machine and the service agree on the time")
		return
	}
	direction := "ahead of"
	if difference < 0 {
		direction = "behind"
	}
	r.warn(check, "set the clock of this machine, or have it synchronised; until then give a length of time with --until, and no time of day",
		"the clock of this machine is %s %s that of the service; locks end by the latter", difference.Abs().Round(time.Second), direction)
}

// judgeDefinition reports whether the cluster serves Locks as this program knows them.
func (r *Report) judgeDefinition(facts *Facts) (isServed bool) {
	const check, name = "type Lock", "locks.forrst.dev"
	install := "apply config/crd of lock-operator: " + facts.Kubectl("apply", "-k", "config/crd")
	switch err := facts.Definition.Err; {
	case apierrors.IsNotFound(err):
		r.fail(check, "install it", "lock-operator is not installed: the cluster does not know Locks")
		return false
	case err != nil && apimeta.IsNoMatchError(facts.Served):
		r.fail(check, "install it", "lock-operator is not installed, or not wholly: the cluster does not serve Locks: %v", facts.Served)
		return false
	case apierrors.IsForbidden(err) && facts.Served == nil:
		r.ok(check, "the cluster serves %s; you may not read its definition", v1alpha1.GroupVersion)
		return true
	case err != nil:
		r.skipUnread(check, "its definition", err)
		return true
	}
	definition, ours := facts.Definition.Value, apiextensionsv1.CustomResourceDefinitionVersion{}
	is := func(kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
		return slices.ContainsFunc(definition.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return condition.Type == kind && condition.Status == apiextensionsv1.ConditionTrue
		})
	}
	var served []string
	for _, version := range definition.Spec.Versions {
		if version.Served {
			served = append(served, version.Name)
		}
		if version.Served && version.Name == v1alpha1.GroupVersion.Version {
			ours = version
		}
	}
	switch {
	case definition.DeletionTimestamp != nil || is(apiextensionsv1.Terminating):
		r.fail(check, "install lock-operator again when the definition is gone; see what keeps it: "+facts.Kubectl("get", name, "-A"),
			"its definition is being deleted, and all Locks with it: no lock can be taken")
		return false
	case !is(apiextensionsv1.Established):
		r.fail(check, "see why: "+facts.Kubectl("describe", "crd", name), "its definition is there and not established")
		return false
	case !ours.Served:
		r.fail(check, install, "the cluster serves the versions %s, and not %s", strings.Join(served, ", "), v1alpha1.GroupVersion.Version)
		return false
	case facts.Served != nil:
		r.fail(check, "see who serves the group: "+facts.Kubectl("get", "apiservices"), "its definition is there, and the cluster does not serve Locks: %v", facts.Served)
		return false
	}
	if missing := slices.IndexFunc(neededFields, func(field string) bool { return !hasField(ours, field) }); missing >= 0 {
		r.fail(check, install, "its definition is of an earlier version: it lacks spec.%s", neededFields[missing])
	} else {
		r.ok(check, "the cluster serves %s", v1alpha1.GroupVersion)
	}
	return true
}

// hasField reports whether the spec of that version has the field.
func hasField(version apiextensionsv1.CustomResourceDefinitionVersion, field string) bool {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return false
	}
	_, has := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties[field]
	return has
}

// roles are the cluster roles that bring verbs, by what they are for.
var roles = []struct {
	role, purpose string
	verbs         []string
}{
	{"lock-operator-view", "see locks", []string{"get", "list", "watch"}},
	{"lock-operator-edit", "take and release locks", []string{"create", "update", "delete"}},
}

func (r *Report) judgeRights(facts *Facts) {
	const check = "your rights"
	if err := facts.Rights.Err; err != nil {
		r.skip(check, "they could not be asked for: %v", err)
		return
	}
	user := "you"
	if facts.Self.Err == nil {
		user = facts.Self.Value.Username
	}
	hasAll := true
	for _, role := range roles {
		missing := slices.DeleteFunc(slices.Clone(role.verbs), func(verb string) bool { return slices.Contains(facts.Rights.Value, verb) })
		if len(missing) > 0 {
			hasAll = false
			r.warn(check, fmt.Sprintf("to %s, have the cluster role %s bound in that namespace", role.purpose, role.role),
				"%s may not %s locks in namespace %s", user, strings.Join(missing, ", "), facts.Namespace)
		}
	}
	force := "and not end those of other holders"
	if slices.Contains(facts.Rights.Value, "force-release") {
		force = "and end those of other holders"
	}
	if hasAll {
		r.ok(check, "%s may see, take and release locks in namespace %s, %s", user, facts.Namespace, force)
	}
}

// judgeWebhooks says whether the API server asks the webhooks that the installation needs.
func (r *Report) judgeWebhooks(facts *Facts) {
	const check = "webhook"
	if err := facts.Webhooks.Err; err != nil {
		r.skipUnread(check, "the webhook configurations", err)
		return
	}
	for _, need := range needs {
		switch webhooks := named(facts.Webhooks.Value, need.name); len(webhooks) {
		case 0:
			r.fail(check, "apply config/default of lock-operator", "no webhook configuration has %s, which judges %s: %s", need.name, need.about, need.without)
		case 1:
			r.judgeWebhook(check, need, &webhooks[0])
		default:
			r.fail(check, "delete that of the former installation: "+facts.Kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations"),
				"%d webhook configurations have %s", len(webhooks), need.name)
		}
	}
	r.judgeAuthorities(facts)
	if webhooks := named(facts.Webhooks.Value, lockWebhook); len(webhooks) == 1 {
		r.judgeExemptions(exemptedUsers(webhooks[0]), facts)
	}
}

// judgeWebhook says whether the API server asks the webhook about all that it is needed for.
func (r *Report) judgeWebhook(check string, need need, webhook *admissionregistrationv1.ValidatingWebhook) {
	const apply = "apply config/webhook of lock-operator again"
	before := len(*r)
	if failurePolicy := ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail); failurePolicy != need.failurePolicy {
		r.fail(check, apply, "the failurePolicy of %s is %s, and not %s", need.name, failurePolicy, need.failurePolicy)
	}
	for _, operation := range need.operations {
		if !slices.ContainsFunc(webhook.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			isOperation := slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
			return isOperation && slices.Contains(rule.Resources, need.resource)
		}) {
			r.fail(check, apply, "%s is not asked about the operation %s of %s", need.name, operation, need.resource)
		}
	}
	if selector := webhook.NamespaceSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		r.warn(check, apply, "the namespaceSelector of %s leaves namespaces out; %s there are not judged", need.name, need.resource)
	}
	if len(*r) == before {
		address := ptr.Deref(webhook.ClientConfig.URL, "an unknown address")
		if service := webhook.ClientConfig.Service; service != nil {
			address = fmt.Sprintf("the service %s in namespace %s", service.Name, service.Namespace)
		}
		r.ok(check, "the API server asks %s about %s", address, need.about)
	}
}

// judgePolicies looks at the policies that the API server evaluates by itself.
func (r *Report) judgePolicies(facts *Facts) {
	const check = "policies"
	if err := facts.Policies.Err; err != nil {
		r.skipUnread(check, "the admission policies", err)
		return
	}
	before := len(*r)
	for _, policy := range policies {
		if !policy.isIn(facts.Policies.Value.InForce) {
			r.fail(check, "apply config/admission-policy of lock-operator again",
				"the policy %s%s is not in force: %s", operatorName, policy.suffix, policy.without)
		}
	}
	if jobCreators.isAskedBy(facts.Labels.Value) && !jobCreators.policy.isIn(facts.Policies.Value.InForce) {
		r.failUnmet(check, jobCreators, facts)
	}
	for _, binding := range facts.Policies.Value.Dangling {
		r.fail(check, "apply the policy, such as by config/lock-policies of lock-operator, or delete the binding",
			"the binding %s, which does not exist, has no effect", binding)
	}
	if len(*r) == before {
		r.ok(check, "those of the installation are in force")
	}
}

// failUnmet says that the namespace asks for a policy that is not in force.
func (r *Report) failUnmet(check string, asked asked, facts *Facts) {
	r.fail(check, fmt.Sprintf("apply %s of lock-operator, or take the label away: %s",
		asked.folder, facts.Kubectl("label", "namespace", facts.Namespace, asked.label+"-")),
		"namespace %s has the label %s=%s, and the policy %s%s is not in force: %s",
		facts.Namespace, asked.label, asked.value, operatorName, asked.policy.suffix, asked.policy.without)
}

// judgeAuthorities says of each authority of a webhook whether the API server can trust it.
func (r *Report) judgeAuthorities(facts *Facts) {
	var judged [][]byte
	for _, webhook := range facts.Webhooks.Value {
		bundle := webhook.ClientConfig.CABundle
		if !isOfOperator(webhook.Name) || slices.ContainsFunc(judged, func(other []byte) bool { return bytes.Equal(other, bundle) }) {
			continue
		}
		judged = append(judged, bundle)
		r.judgeAuthority("certificate", bundle, facts.Server)
	}
}

// judgeAuthority says whether the API server can trust the webhook.
func (r *Report) judgeAuthority(check string, bundle []byte, now time.Time) {
	var last time.Time
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && authority.NotAfter.After(last) {
			last = authority.NotAfter
		}
	}
	switch {
	case len(bundle) == 0:
		r.fail(check, doRenew, "the webhook configuration has no caBundle, so the API server does not trust the webhook")
	case last.IsZero():
		r.fail(check, doRenew, "the caBundle of the webhook configuration holds no certificate")
	default:
		r.judgeValidity(check, "the authority in the caBundle", last, now)
	}
}

const doRenew = "see why it is not renewed: docs/certificates.md, When something fails"

// judgeValidity says whether what has this end is valid for long enough.
func (r *Report) judgeValidity(check, what string, notAfter, now time.Time) {
	switch left := notAfter.Sub(now); {
	case left <= 0:
		r.fail(check, doRenew, "%s has expired on %s", what, day(notAfter))
	case left < shortValidity:
		r.warn(check, doRenew, "%s expires on %s", what, day(notAfter))
	default:
		r.ok(check, "%s is valid until %s", what, day(notAfter))
	}
}

// judgeExemptions looks at the users whose writes the webhook does not judge.
func (r *Report) judgeExemptions(users []string, facts *Facts) {
	const check = "exempted users"
	switch self := facts.Self.Value.Username; {
	case len(users) == 0:
		r.warn(check, "apply config/webhook, with config/identity if it is installed under other names",
			"the webhook configuration exempts no user: the operator's own writes fail while the webhook is away")
	case facts.Self.Err == nil && slices.Contains(users, self):
		r.warn(check, "use another account, and leave this one to the operator", "you are %s, whose writes of Locks nothing judges or audits", self)
	case facts.Missing.Err != nil:
		r.skipUnread(check, "the service accounts of the operator", facts.Missing.Err)
	case len(facts.Missing.Value) > 0:
		r.fail(check, "adapt the match conditions to where the operator runs",
			"%s is exempted and does not exist: a user who may create it could write Locks that nothing judges", strings.Join(facts.Missing.Value, ", "))
	default:
		r.ok(check, "the webhook leaves out the operator alone: %s", strings.Join(users, ", "))
	}
}

// judgeAdmission says whether the webhook answers, and judges: by what became of two dry runs.
func (r *Report) judgeAdmission(facts *Facts) {
	const check = "a dry run"
	if facts.Admitted.Err != nil {
		r.judgeRefusal(check, facts)
		return
	}
	holder, self := facts.Admitted.Value.Spec.Holder, facts.Self.Value.Username
	switch err := facts.Forged.Err; {
	case facts.Self.Err == nil && holder != self:
		r.fail(check, "see which webhooks change Locks: "+facts.Kubectl("get", "mutatingwebhookconfigurations"), "a new lock would be held by %q, and you are %q", holder, self)
	case err == nil:
		r.fail(check, "see that no match condition leaves you out: "+facts.Kubectl("get", "mutatingwebhookconfigurations", "-o", "yaml"), "a new lock with a forged holder would be admitted")
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		r.warn(check, "run this again", "a new lock would be granted; what became of a forged one is not known: %v", err)
	default:
		r.ok(check, "the webhook answers: it would grant a new lock to %s, and refuses a forged one", holder)
	}
}

// judgeRefusal says why a lock that every installation grants was not granted.
func (r *Report) judgeRefusal(check string, facts *Facts) {
	err := facts.Admitted.Err
	text := err.Error()
	switch {
	case errors.Is(err, errMayNotCreate):
		r.skip(check, "you may not create locks in namespace %s", facts.Namespace)
	case strings.Contains(text, "are not stamped"):
		r.fail(check, "install the webhook of lock-operator; if it is installed, see that its match conditions do not leave you out", "no webhook judges Locks that you write")
	case isUncalled(err, lockWebhook):
		r.fail(check, doAbout(facts, text), "the webhook does not answer: %s", withoutIntroduction(text))
	case apierrors.IsNotFound(err):
		r.fail(check, "see that the namespace exists: "+facts.Kubectl("get", "namespace", facts.Namespace), "%s", text)
	case apierrors.HasStatusCause(err, v1alpha1.CauseTypeNamespaceFull):
		r.fail(check, "delete expired locks, or raise --max-locks-per-namespace", "%s", text)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		r.warn(check, "see the admission policies and quotas of the namespace; programs that lock are refused, too", "a new lock is refused: %s", text)
	default:
		r.fail(check, "run this again; then see the logs of the API server", "a new lock is not granted: %s", text)
	}
}

// callFailed is how the API server begins to say that it could not call a webhook.
const callFailed = "failed calling webhook"

// isUncalled reports whether a write failed since the API server could not call the webhook.
func isUncalled(err error, webhook string) bool {
	return err != nil && strings.Contains(err.Error(), callFailed) && strings.Contains(err.Error(), webhook)
}

// doAbout says what to do about a webhook that cannot be called.
func doAbout(facts *Facts, text string) string {
	has := func(part string) bool { return strings.Contains(text, part) }
	bringBack := "bring it back: " + facts.Kubectl("get", "pods", "-A", "-l", nameLabel+"="+operatorName)
	switch {
	case has("connection refused"): // The address of a call has the word timeout in it.
		return bringBack
	case has("x509"), has("tls:"):
		return "the API server does not trust its certificate; see the authorities that it trusts: " + facts.Kubectl("get", "mutatingwebhookconfigurations", "-o", "yaml")
	case has("no endpoints available"), has("not found"):
		return "bring it back: " + facts.Kubectl("get", "pods", "-n", facts.OperatorNamespace, "-l", "app.kubernetes.io/component=webhook")
	case has("deadline exceeded"), has("timeout"):
		return "see that the network lets the API server reach it (network policies, firewall), and that it is not overloaded"
	default:
		return bringBack
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

// judgeDeployments looks at the processes of the operator.
func (r *Report) judgeDeployments(facts *Facts) {
	const check = "operator"
	switch err := facts.Deployments.Err; {
	case err != nil:
		r.skipUnread(check, "Deployments in namespace "+facts.OperatorNamespace, err)
		return
	case len(facts.Deployments.Value) == 0:
		r.skip(check, "there is no Deployment of it in namespace %s; it runs elsewhere", facts.OperatorNamespace)
		return
	}
	var images []string
	for index := range facts.Deployments.Value {
		images = append(images, r.judgeDeployment(facts, &facts.Deployments.Value[index])...)
	}
	slices.Sort(images)
	if images = slices.Compact(images); len(images) > 1 {
		r.warn(check, "finish the upgrade", "its Deployments run different images: %s", strings.Join(images, ", "))
	}
}

// judgeDeployment returns the images of the Deployment.
func (r *Report) judgeDeployment(facts *Facts, deployment *appsv1.Deployment) (images []string) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Image)
	}
	wanted, ready := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.ReadyReplicas
	text := fmt.Sprintf("%d of %d replicas are ready", ready, wanted)
	do := "see why: " + facts.Kubectl("describe", "deployment", deployment.Name, "-n", deployment.Namespace)
	switch {
	case ready == 0:
		r.fail(deployment.Name, do, "%s", text)
	case ready < wanted:
		r.warn(deployment.Name, do, "%s", text)
	case len(images) > 0:
		r.ok(deployment.Name, "%s, image %s", text, images[0])
	default:
		r.ok(deployment.Name, "%s", text)
	}
	return images
}

// judgeIssued looks at the certificates that cert-manager issues for webhook and façade.
func (r *Report) judgeIssued(facts *Facts) {
	const check = "issued certificates"
	switch err := facts.Certificates.Err; {
	case apimeta.IsNoMatchError(err), apierrors.IsNotFound(err):
		r.skip(check, "there is no cert-manager")
	case err != nil:
		r.skipUnread(check, "Certificates in namespace "+facts.OperatorNamespace, err)
	}
	for index := range facts.Certificates.Value {
		certificate := &facts.Certificates.Value[index]
		name := certificate.GetName()
		isReady, message := readinessOf(certificate)
		end, _, _ := unstructured.NestedString(certificate.Object, "status", "notAfter")
		notAfter, err := time.Parse(time.RFC3339, end)
		if err != nil && message == "" {
			message = "it was not issued yet"
		}
		do := "see why: " + facts.Kubectl("describe", "certificate", name, "-n", facts.OperatorNamespace)
		switch {
		case !notAfter.After(facts.Server):
			r.fail(check, do, "%s is not valid: %s", name, message)
		case !isReady:
			r.warn(check, do, "%s is valid until %s, and is not renewed: %s", name, day(notAfter), message)
		default:
			r.ok(check, "%s is valid until %s", name, day(notAfter))
		}
	}
}

// readinessOf returns whether the condition Ready of a Certificate is true, and its message.
func readinessOf(certificate *unstructured.Unstructured) (isReady bool, message string) {
	conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
	for _, each := range conditions {
		if condition, isMap := each.(map[string]any); isMap && condition["type"] == "Ready" {
			return condition["status"] == "True", fmt.Sprint(condition["message"])
		}
	}
	return false, ""
}

// judgeGuards says whether the namespace has opted in to guards, and they are in force then.
func (r *Report) judgeGuards(facts *Facts) {
	const check = "guards"
	if err := facts.Webhooks.Err; err != nil {
		r.skipUnread(check, "the webhook configurations", err)
		return
	}
	webhooks, isAsked := len(named(facts.Webhooks.Value, guardWebhook)), fence.isAskedBy(facts.Labels.Value)
	isUnfenced := facts.Policies.Err == nil && !fence.policy.isIn(facts.Policies.Value.InForce)
	switch {
	case webhooks == 0 && isAsked:
		r.fail(check, "apply config/guards of lock-operator, or take the label away: "+facts.Kubectl("label", "namespace", facts.Namespace, fence.label+"-"),
			"namespace %s has opted in, and no webhook configuration has %s: no object there is guarded", facts.Namespace, guardWebhook)
	case webhooks == 0:
		r.ok(check, "they are not installed, so a freeze is refused")
	case webhooks > 1:
		r.warn(check, "delete those of former installations", "%d webhook configurations ask about guarded objects", webhooks)
	case isUnfenced && isAsked:
		r.failUnmet(check, fence, facts)
	case facts.Labels.Err != nil:
		r.ok(check, "they are installed; you may not read whether namespace %s has opted in", facts.Namespace)
	case !isAsked:
		r.ok(check, "they are installed, and namespace %s has not opted in: %s",
			facts.Namespace, facts.Kubectl("label", "namespace", facts.Namespace, fence.label+"="+fence.value))
	case isUncalled(facts.Admitted.Err, lockWebhook), isUncalled(facts.Guarded, guardWebhook):
		r.fail(check, "bring the webhook back; docs/runbooks.md says what to do until then",
			"they are in force in namespace %s, where every write of a listed resource fails while the webhook does not answer", facts.Namespace)
	default:
		r.ok(check, "they are installed, and in force in namespace %s", facts.Namespace)
	}
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }
