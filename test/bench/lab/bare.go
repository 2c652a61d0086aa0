package lab

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/measure"
)

// bareDefinition is the definition of the bare custom resource. Without schema the API server neither prunes nor
// validates its objects, and no webhook is asked about them.
const bareDefinition = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "` + contender.BareResource + `.` + contender.BareGroup + `"},
  "spec": {
    "group": "` + contender.BareGroup + `", "scope": "Namespaced",
    "names": {"kind": "` + contender.BareKind + `", "listKind": "` + contender.BareKind + `List", "plural": "` + contender.BareResource + `", "singular": "bare"},
    "versions": [{"name": "v1", "served": true, "storage": true,
      "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
  }
}`

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// youngDefinition is how long the API server delays creates after it has begun to serve a definition.
const youngDefinition = 2 * time.Second

// defineBare defines the bare custom resource and returns when creates are quick.
func defineBare(ctx context.Context, client rest.Interface) error {
	err := client.Post().AbsPath(definitionsPath).SetHeader("Content-Type", "application/json").Body([]byte(bareDefinition)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for deadline := time.Now().Add(StartTimeout); time.Now().Before(deadline); {
		text, err := client.Get().AbsPath(definitionsPath, contender.BareResource+"."+contender.BareGroup).DoRaw(ctx)
		if err != nil {
			return err
		}
		var definition unstructured.Unstructured
		if err := definition.UnmarshalJSON(text); err != nil {
			return err
		}
		// At first they are null, which is no slice.
		conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
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
