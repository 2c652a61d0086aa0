package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field manager of all installed objects.
const fieldOwner = client.FieldOwner("devcluster")

// install applies the objects and waits until the API server serves the resources that they
// define. It returns the time at which the last of these was established.
func install(ctx context.Context, admin client.Client, objects []*unstructured.Unstructured) (established time.Time, err error) {
	for _, object := range objects {
		if err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner); err != nil {
			return established, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := waitFor(ctx, "CustomResourceDefinition "+object.GetName(), func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			at, err := establishedAt(object)
			if at.After(established) {
				established = at
			}
			return err
		})
		if err != nil {
			return established, err
		}
	}
	return established, nil
}

// establishedAt returns when the API server started to serve the resource of the
// definition. If it does not serve it, the error contains the definition's conditions.
func establishedAt(object *unstructured.Unstructured) (time.Time, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &definition); err != nil {
		return time.Time{}, err
	}
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return condition.LastTransitionTime.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("the definition is not established: %v", definition.Status.Conditions)
}

// youngDefinition is how long, after a definition was established, the API server delays each
// create of its custom resource by two seconds (apiextensions-apiserver, serveResource).
const youngDefinition = 2 * time.Second

// waitForQuickCreates returns when the API server creates locks without that delay.
func waitForQuickCreates(ctx context.Context, established time.Time) error {
	timer := time.NewTimer(time.Until(established.Add(youngDefinition)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// waitForControllerManager returns when kube-controller-manager works: it has created the
// service account of the default namespace, without which no pod is admitted.
func waitForControllerManager(ctx context.Context, admin client.Client) error {
	return waitFor(ctx, controllerManagerName, func(ctx context.Context) error {
		return admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	})
}
