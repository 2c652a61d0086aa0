package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/measure"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// youngDefinition is how long the API server delays creates after it has begun to serve a definition.
const youngDefinition = 2 * time.Second

// bareDefinition returns the definition of [contender.Bare]. Without schema the API server neither prunes nor
// validates its objects.
func bareDefinition() *unstructured.Unstructured {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	nameDefinition(definition, contender.Bare)
	return definition
}

// lockDefinition returns the definition of a type with the schema of a Lock.
func lockDefinition(config string, of contender.BareType) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(config, "crd", "bases", "forrst.dev_locks.yaml"))
	if err != nil {
		return nil, err
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &definition.Object); err != nil {
		return nil, err
	}
	nameDefinition(definition, of)
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, version := range versions {
		fields, _ := version.(map[string]any)
		fields["name"] = "v1"
	}
	return definition, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
}

// removeRules removes all rules from a schema, or what contains one, and says whether there were any.
func removeRules(from any) bool {
	const rules = "x-kubernetes-validations"
	removed := false
	switch from := from.(type) {
	case map[string]any:
		_, removed = from[rules]
		delete(from, rules)
		for _, part := range from {
			removed = removeRules(part) || removed
		}
	case []any:
		for _, part := range from {
			removed = removeRules(part) || removed
		}
	}
	return removed
}

func nameDefinition(definition *unstructured.Unstructured, of contender.BareType) {
	definition.SetName(of.Resource + "." + contender.BareGroup)
	spec, _ := definition.Object["spec"].(map[string]any)
	spec["group"] = contender.BareGroup
	spec["names"] = map[string]any{
		"kind": of.Kind, "listKind": of.Kind + "List", "plural": of.Resource, "singular": strings.ToLower(of.Kind),
	}
}

// DefineCopies defines [contender.Ruled] and [contender.Ruleless], and returns when creates are quick.
func (l *Lab) DefineCopies(ctx context.Context) error {
	clientset, err := kubernetes.NewForConfig(l.Admin)
	if err != nil {
		return err
	}
	ruled, err := lockDefinition(l.Options.Config, contender.Ruled)
	if err != nil {
		return err
	}
	ruleless, err := lockDefinition(l.Options.Config, contender.Ruleless)
	if err != nil {
		return err
	}
	if !removeRules(ruleless.Object) {
		return errors.New("the schema of a Lock has no rules to leave out")
	}
	client := clientset.Discovery().RESTClient()
	return errors.Join(define(ctx, client, ruled), define(ctx, client, ruleless))
}

// define creates a definition and returns when creates of its objects are quick.
func define(ctx context.Context, client rest.Interface, definition *unstructured.Unstructured) error {
	text, err := definition.MarshalJSON()
	if err != nil {
		return err
	}
	err = client.Post().AbsPath(definitionsPath).SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for deadline := time.Now().Add(StartTimeout); time.Now().Before(deadline); {
		text, err := client.Get().AbsPath(definitionsPath, definition.GetName()).DoRaw(ctx)
		if err != nil {
			return err
		}
		var current unstructured.Unstructured
		if err := current.UnmarshalJSON(text); err != nil {
			return err
		}
		// At first they are null, which is no slice.
		conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
		for _, condition := range conditions {
			fields, _ := condition.(map[string]any)
			if fields["type"] == "Established" && fields["status"] == string(metav1.ConditionTrue) {
				return measure.WaitUntil(ctx, time.Now().Add(youngDefinition))
			}
		}
		if err := measure.WaitUntil(ctx, time.Now().Add(startPoll)); err != nil {
			return err
		}
	}
	return errors.New("it is not served")
}
