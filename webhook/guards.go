package webhook

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook/guard"
)

// guardVerbs are the rights that a user needs to an object, or, for a selector, to all objects of its
// resource in the namespace, to reserve it for itself: those to all that the guard keeps other users
// from. The API server asks about the create of a server-side apply by name, too.
var guardVerbs = []string{"create", "update", "delete"}

// checkGuards checks that the guards of a new grant are enforced and that the user may reserve what
// they name. It fails closed. Without guards it costs nothing; with guards, two reads and an access
// review for each distinct right.
func (a *LockAdmission) checkGuards(ctx context.Context, request admission.Request, guards []v1alpha1.Guard) error {
	if len(guards) == 0 {
		return nil
	}
	if !a.IsGuarding {
		return forbiddenGuards(rules.GuardsPath, "are not enforced in this cluster: lock-operator runs without --guards; see docs/guards.md")
	}
	if err := a.checkEnforced(ctx, request.Namespace, guards); err != nil {
		return err
	}
	return a.authorizeGuards(ctx, request, guards)
}

// checkEnforced refuses guards that the API server would not ask the operator about, by the webhook
// configuration that is in force: a holder would rely on a protection that is not there. What else an
// overlay changes in it, such as match conditions, is not looked at.
func (a *LockAdmission) checkEnforced(ctx context.Context, name string, guards []v1alpha1.Guard) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := a.LiveReader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return fmt.Errorf("read the namespace to see whether it has opted in to guards: %w", err)
	}
	var configurations admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := a.LiveReader.List(ctx, &configurations); err != nil {
		return fmt.Errorf("read the webhook configurations to see what may be guarded: %w", err)
	}
	var configured, reliable, inForce []admissionregistrationv1.ValidatingWebhook
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			if webhook.Name != guard.WebhookName {
				continue
			}
			configured = append(configured, webhook)
			if !isReliable(&webhook) {
				continue
			}
			reliable = append(reliable, webhook)
			if selector, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector); err == nil && selector.Matches(labels.Set(namespace.Labels)) {
				inForce = append(inForce, webhook)
			}
		}
	}
	switch {
	case len(configured) == 0:
		return forbiddenGuards(rules.GuardsPath, "are not enforced in this cluster: it has no webhook configuration for them; see docs/guards.md")
	case len(reliable) == 0:
		return forbiddenGuards(rules.GuardsPath, "are not enforced for all objects and at all times in this cluster: their webhook configuration "+
			"has an objectSelector, or a failurePolicy other than Fail; see docs/guards.md")
	case len(inForce) == 0 && namespace.Labels[v1alpha1.GuardsLabel] == v1alpha1.GuardsEnabled:
		return forbiddenGuards(rules.GuardsPath, fmt.Sprintf("are not enforced in namespace %q, which their webhook configuration leaves out", name))
	case len(inForce) == 0:
		return forbiddenGuards(rules.GuardsPath, fmt.Sprintf("are not enforced in namespace %q; ask a user who may label it: kubectl label namespace %s %s=%s",
			name, name, v1alpha1.GuardsLabel, v1alpha1.GuardsEnabled))
	}
	return checkListed(inForce, guards)
}

// checkListed refuses guards of resources that none of the webhooks lists.
func checkListed(inForce []admissionregistrationv1.ValidatingWebhook, guards []v1alpha1.Guard) error {
	for index, each := range guards {
		resource := rules.GuardedResource(each)
		if !slices.ContainsFunc(inForce, func(webhook admissionregistrationv1.ValidatingWebhook) bool {
			return coversWrites(webhook.Rules, resource)
		}) {
			return forbiddenGuards(rules.GuardsPath.Index(index).Child("resource"), fmt.Sprintf("%s may not be guarded: "+
				"the webhook configuration does not list it; see docs/guards.md. Resources have plural names, such as deployments", resource))
		}
	}
	return nil
}

// isReliable reports whether the webhook depends neither on labels, by which users would take objects
// out of it, nor on an operator that answers.
func isReliable(webhook *admissionregistrationv1.ValidatingWebhook) bool {
	selector := ptr.Deref(webhook.ObjectSelector, metav1.LabelSelector{})
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 &&
		ptr.Deref(webhook.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail
}

// coversWrites reports whether the API server asks about every create, change and delete of an object
// of the resource.
func coversWrites(listed []admissionregistrationv1.RuleWithOperations, resource schema.GroupResource) bool {
	for _, operation := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete} {
		if !slices.ContainsFunc(listed, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.Operations, operation) && slices.Contains(rule.APIGroups, resource.Group) && slices.Contains(rule.Resources, resource.Resource)
		}) {
			return false
		}
	}
	return true
}

// authorizeGuards checks that the user may create, change and delete what the guards name.
func (a *LockAdmission) authorizeGuards(ctx context.Context, request admission.Request, guards []v1alpha1.Guard) error {
	ctx, cancel := context.WithTimeout(ctx, authorizeTimeout) // For all of them together.
	defer cancel()
	type right struct{ group, resource, name string }
	known := map[right]bool{}
	for index, each := range guards {
		needed := right{each.Group, each.Resource, each.Name}
		if known[needed] {
			continue
		}
		known[needed] = true
		for _, verb := range guardVerbs {
			isAllowed, err := isAllowed(ctx, a.Authorizer, request, authorizer.AttributesRecord{
				Verb: verb, APIGroup: each.Group, APIVersion: "*", Resource: each.Resource, Name: each.Name,
			})
			switch resource := rules.GuardedResource(each); {
			case isAllowed:
			case apierrors.IsTooManyRequests(err):
				return err
			case err != nil:
				logf.FromContext(ctx).Error(err, "Could not find out whether a user may guard objects",
					"namespace", request.Namespace, "resource", resource, "verb", verb, "user", request.UserInfo.Username)
				return &forbiddenError{message: fmt.Sprintf("%s: whether you may %s %s could not be found out; try again", rules.GuardsPath.Index(index), verb, resource)}
			default:
				return &forbiddenError{message: fmt.Sprintf("%s: to guard %s in namespace %q you need the rights to create, update and delete; you may not %s %s",
					rules.GuardsPath.Index(index), objectsOf(each), request.Namespace, verb, objectsOf(each))}
			}
		}
	}
	return nil
}

// objectsOf names what the guard covers as far as rights can tell objects apart.
func objectsOf(each v1alpha1.Guard) string {
	if each.Name != "" {
		return fmt.Sprintf("%s %q", rules.GuardedResource(each), each.Name)
	}
	return "all " + rules.GuardedResource(each).String()
}

func forbiddenGuards(path *field.Path, detail string) error {
	return &rules.InvalidError{Problems: field.ErrorList{field.Forbidden(path, detail)}}
}
