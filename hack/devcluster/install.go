package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is whom server-side apply notes as the author of what is installed.
const fieldOwner = client.FieldOwner("devcluster")

// newAdminClient returns a client that may do everything.
func newAdminClient(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// There is no one to be fair to, and every wait is a person's.
	config.QPS = -1
	return client.New(config, client.Options{})
}

// install applies the objects and waits until the API server serves the resources
// that they define.
func install(ctx context.Context, admin client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
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
			return established(object)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// youngDefinition is for how long after it was established the API server makes each
// create of a custom resource wait two seconds (apiextensions-apiserver, serveResource).
const youngDefinition = 2 * time.Second

// waitForQuickCreates returns when the first lock will be taken without that wait.
func waitForQuickCreates(ctx context.Context, objects []*unstructured.Unstructured) error {
	var last time.Time
	for _, object := range objects {
		if at := establishedAt(object); at.After(last) {
			last = at
		}
	}
	timer := time.NewTimer(time.Until(last.Add(youngDefinition)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// establishedAt returns when a definition was established, or the zero time for any
// other object.
func establishedAt(object *unstructured.Unstructured) time.Time {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return time.Time{}
	}
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if !ok || condition["type"] != "Established" {
			continue
		}
		text, _ := condition["lastTransitionTime"].(string)
		at, err := time.Parse(time.RFC3339, text)
		if err == nil {
			return at
		}
	}
	return time.Time{}
}

// established returns nil if the API server serves the resource that the
// definition defines, and else what the definition says about it.
func established(definition *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("it is not established: %v", conditions)
}

// waitForControllerManager returns once kube-controller-manager has done its first
// work: every namespace gets a service account, without which no pod is admitted.
func waitForControllerManager(ctx context.Context, admin client.Client) error {
	return waitFor(ctx, controllerManagerName, func(ctx context.Context) error {
		return admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	})
}
