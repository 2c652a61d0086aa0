package guards_test

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/fixture"
)

// write is a way to change the namespace of a spec.
type write func(ctx context.Context, who fixture.Identity, namespace string) error

// patched sends a patch for the ConfigMap or the Deployment.
func patched(object func(namespace, app string) client.Object, app string, kind types.PatchType, text string, options ...client.PatchOption) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		return who.Client.Patch(ctx, object(namespace, app), client.RawPatch(kind, []byte(text)), options...)
	}
}

func aConfigMap(namespace, app string) client.Object  { return configMap(namespace, app) }
func aDeployment(namespace, app string) client.Object { return deployment(namespace, app) }

// statusPatched sends a merge patch for the Deployment web to its status.
func statusPatched(text string) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		return who.Client.Status().Patch(ctx, deployment(namespace, "web"), client.RawPatch(types.MergePatchType, []byte(text)))
	}
}

// replaced reads the ConfigMap and writes it back with a change.
func replaced(app string, change func(*corev1.ConfigMap)) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		object := configMap(namespace, app)
		if err := root.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return who.Client.Update(ctx, object)
	}
}

// paint changes the ConfigMap's data.
func paint(app, color string) write {
	return patched(aConfigMap, app, types.MergePatchType, fmt.Sprintf(`{"data":{"color":%q}}`, color))
}

// created creates a ConfigMap.
func created(change func(*corev1.ConfigMap)) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		object := configMap(namespace, "fresh")
		change(object)
		return who.Client.Create(ctx, object)
	}
}

func deleted(object func(namespace, app string) client.Object, app string, options ...client.DeleteOption) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		return who.Client.Delete(ctx, object(namespace, app), options...)
	}
}

func deletedAll(ctx context.Context, who fixture.Identity, namespace string) error {
	return who.Client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace), client.MatchingLabels{"app": "web"})
}

func scaled(app string) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		return who.Client.SubResource("scale").Patch(ctx, deployment(namespace, app), patch, client.WithSubResourceBody(&autoscalingv1.Scale{}))
	}
}

// reported writes what a controller writes.
var reported = statusPatched(`{"status":{"collisionCount":1}}`)

// kubectl runs the real one in the namespace.
func kubectl(stdin string, arguments ...string) write {
	return func(ctx context.Context, who fixture.Identity, namespace string) error {
		_, err := who.Kubectl.Run(ctx, stdin, append([]string{"-n", namespace}, arguments...)...)
		return err
	}
}
