package holderref

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Kinds are the kinds of objects that locks may be held for: Pods, Jobs, and those that an
// administrator has added. The zero value has no more than these two. It must not be changed
// once it is in use.
type Kinds struct{ more []schema.GroupKind }

// maxKinds bounds the list, of which each refusal tells.
const maxKinds = 32

// NewKinds returns Pods, Jobs and the given kinds.
func NewKinds(more ...schema.GroupKind) Kinds { return Kinds{slices.Clone(more)} }

// Set implements the flag package's Value. The text names kinds by kind and group, as in
// "Deployment.apps,ConfigMap". Setting it replaces the kinds that were added before.
func (k *Kinds) Set(text string) error {
	var more []schema.GroupKind
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		kind := schema.ParseGroupKind(name)
		// Kinds are letters and digits, in which the form of a label differs only by case.
		if len(validation.IsDNS1035Label(strings.ToLower(kind.Kind))) > 0 || kind.Group != "" && len(validation.IsDNS1123Subdomain(kind.Group)) > 0 {
			return fmt.Errorf("%q is not a kind with its group, such as Deployment.apps or ConfigMap", name)
		}
		more = append(more, kind)
	}
	if len(more) > maxKinds {
		return fmt.Errorf("there may be at most %d kinds", maxKinds)
	}
	k.more = more
	return nil
}

// String names the kinds besides Pods and Jobs, in the form of Set.
func (k *Kinds) String() string { return strings.Join(k.names()[2:], ",") }

// names returns the names of all kinds.
func (k *Kinds) names() []string {
	names := []string{"Pod", "Job.batch"}
	for _, kind := range k.more {
		names = append(names, kind.String())
	}
	return names
}

// Has reports whether locks may be held for objects of the kind that the reference names. The
// version does not count.
func (k *Kinds) Has(ref *v1alpha1.HolderReference) bool {
	return rules.IsPod(ref) || rules.IsJob(ref) || slices.Contains(k.more, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind())
}

// versionOf returns the version of the kinds that are known without asking the API server, or "".
func versionOf(ref *v1alpha1.HolderReference) string {
	switch {
	case rules.IsPod(ref):
		return corev1.SchemeGroupVersion.String()
	case rules.IsJob(ref):
		return batchv1.SchemeGroupVersion.String()
	}
	return ""
}
