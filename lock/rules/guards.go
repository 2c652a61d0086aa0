package rules

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// GuardsPath is the path of the field that lists what a Lock guards.
var GuardsPath = field.NewPath("spec", "guards")

// unguardable are resources whose guard would do harm: locks, since writing them is how a guard ends,
// and what the components of Kubernetes and their users report by.
var unguardable = []schema.GroupResource{
	{Group: v1alpha1.GroupVersion.Group, Resource: "locks"},
	{Group: "coordination.k8s.io", Resource: "leases"},
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
}

// maxRequirements bounds the labels and expressions of a selector, and the values of an expression:
// every change of an object of the resource is compared with them.
const maxRequirements = 16

// validateGuards reports mistakes in the guards, of which the schema finds only some.
func validateGuards(guards []v1alpha1.Guard) field.ErrorList {
	var problems field.ErrorList
	for index, guard := range guards {
		path := GuardsPath.Index(index)
		if slices.Contains(unguardable, GuardedResource(guard)) {
			problems = append(problems, field.Forbidden(path.Child("resource"),
				fmt.Sprintf("%s cannot be guarded: Kubernetes and lock-operator write them while the lock is held", GuardedResource(guard))))
		}
		switch selector := guard.Selector; {
		case (guard.Name == "") == (selector == nil):
			problems = append(problems, field.Invalid(path, field.OmitValueType{},
				"set exactly one of name and selector; an empty selector stands for all objects of the resource"))
		case selector != nil:
			problems = append(problems, validateSelector(selector, path.Child("selector"))...)
		}
	}
	return problems
}

func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	problems := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
	if count := len(selector.MatchLabels) + len(selector.MatchExpressions); count > maxRequirements {
		problems = append(problems, field.TooMany(path, count, maxRequirements))
	}
	for index, expression := range selector.MatchExpressions {
		if count := len(expression.Values); count > maxRequirements {
			problems = append(problems, field.TooMany(path.Child("matchExpressions").Index(index).Child("values"), count, maxRequirements))
		}
	}
	return problems
}

// guardsChanged reports a change of the guards within a grant. The right to guard is checked when a
// grant begins, and the records of the grant tell what it guarded.
func guardsChanged(next, old *v1alpha1.Lock) field.ErrorList {
	if equality.DeepEqual(next.Spec.Guards, old.Spec.Guards) {
		return nil
	}
	return field.ErrorList{field.Forbidden(GuardsPath,
		"may not change while the lock is held; release it and acquire it again with other guards, or hand it on")}
}

// GuardedResource returns the resource of the objects that the guard names.
func GuardedResource(guard v1alpha1.Guard) schema.GroupResource {
	return schema.GroupResource{Group: guard.Group, Resource: guard.Resource}
}

// Target is an object that a request creates, changes or deletes, in the namespace of the lock.
type Target struct {
	Resource schema.GroupResource
	Name     string
	// Labels are those before the change and those after it, each nil if there is no such object.
	// A guard by a selector matches if either does: no user can take an object out of the guarded
	// ones by its labels, or put one among them.
	Labels []labels.Set
}

// IsGuarded reports whether the lock guards the target, if it is held. A selector that cannot be
// read guards nothing: admission did not judge it, and so not the right of its author either.
func IsGuarded(lock *v1alpha1.Lock, target Target) bool {
	return slices.ContainsFunc(lock.Spec.Guards, func(guard v1alpha1.Guard) bool {
		switch {
		case GuardedResource(guard) != target.Resource:
			return false
		case guard.Selector == nil:
			return guard.Name != "" && guard.Name == target.Name
		}
		selector, err := metav1.LabelSelectorAsSelector(guard.Selector)
		return err == nil && slices.ContainsFunc(target.Labels, func(set labels.Set) bool { return selector.Matches(set) })
	})
}

// NewGuards returns the guards for which the right of the user must be checked: those of a lock
// whose grant begins with the change from former to next. Former is nil for a create.
func NewGuards(next, former *v1alpha1.Lock) []v1alpha1.Guard {
	if former != nil && next.Spec.AcquireTime.Equal(former.Spec.AcquireTime) {
		return nil
	}
	return next.Spec.Guards
}

// GuardedError says that a held lock guards an object against other users than its holder.
type GuardedError struct {
	// Lock is the lock as it was read.
	Lock *v1alpha1.Lock
}

// Error implements error.
func (e *GuardedError) Error() string {
	spec := &e.Lock.Spec
	text := fmt.Sprintf("it is guarded by the lock %q, key %s, which %q has held since %s and holds until %s",
		e.Lock.Name, spec.FullKey(), spec.Holder, spec.AcquireTime, spec.ExpireTime)
	if spec.Reason != "" {
		text += fmt.Sprintf(" (%s)", spec.Reason)
	}
	return text
}
