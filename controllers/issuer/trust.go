package issuer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// authorityKey is the key of the ConfigMap with what clients must trust.
	authorityKey = "ca.crt"
	// injectedByCertManager is cert-manager's annotation of the configurations whose caBundle it writes.
	injectedByCertManager = "cert-manager.io/inject-ca-from"
)

// publish tells clients which authority to trust.
func (r *Reconciler) publish(ctx context.Context, authority []byte) error {
	var former corev1.ConfigMap
	if err := r.get(ctx, r.options.Authority, &former); err != nil {
		return err
	}
	if former.Data[authorityKey] == string(authority) {
		return nil
	}
	changed := former.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string]string{}
	}
	changed.Data[authorityKey] = string(authority)
	if err := r.options.Client.Patch(ctx, changed, client.MergeFromWithOptions(&former, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("publish the authority: %w", err)
	}
	return nil
}

// inject lets the API servers trust the authority when they call webhooks of the operator.
func (r *Reconciler) inject(ctx context.Context, authority []byte) error {
	var failed error
	for _, list := range []client.ObjectList{
		&admissionregistrationv1.MutatingWebhookConfigurationList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{},
	} {
		failed = errors.Join(failed, r.options.Client.List(ctx, list))
		_ = apimeta.EachListItem(list, func(configuration runtime.Object) error {
			former, _ := configuration.(client.Object)
			failed = errors.Join(failed, r.injectInto(ctx, former, authority))
			return nil // The others are written, too.
		})
	}
	return failed
}

// injectInto writes the caBundle of the operator's webhooks of a configuration, and nothing else.
func (r *Reconciler) injectInto(ctx context.Context, former client.Object, authority []byte) error {
	changed, _ := former.DeepCopyObject().(client.Object)
	isChanged := false
	for _, callee := range calleesOf(changed) {
		if r.issuesFor(callee.Service) && !bytes.Equal(callee.CABundle, authority) {
			callee.CABundle, isChanged = authority, true
		}
	}
	if !isChanged {
		return nil
	}
	if former.GetAnnotations()[injectedByCertManager] != "" {
		return fmt.Errorf("cert-manager writes the caBundle of the webhook configuration %s: remove its annotation %s, or issue no certificates here",
			former.GetName(), injectedByCertManager)
	}
	// It merges the webhooks by name; any other patch would replace their fields that this program does not know.
	patch := client.StrategicMergeFrom(former, client.MergeFromWithOptimisticLock{}) //nolint:forbidigo // It is conditional.
	if err := r.options.Client.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("write the caBundle of the webhook configuration %s: %w", former.GetName(), err)
	}
	logf.FromContext(ctx).Info("Wrote the caBundle of a webhook configuration", "configuration", former.GetName())
	return nil
}

// calleesOf returns how the webhooks of a configuration are called.
func calleesOf(configuration client.Object) []*admissionregistrationv1.WebhookClientConfig {
	var callees []*admissionregistrationv1.WebhookClientConfig
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for index := range configuration.Webhooks {
			callees = append(callees, &configuration.Webhooks[index].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for index := range configuration.Webhooks {
			callees = append(callees, &configuration.Webhooks[index].ClientConfig)
		}
	}
	return callees
}

// issuesFor reports whether a Service is one that certificates are issued for.
func (r *Reconciler) issuesFor(service *admissionregistrationv1.ServiceReference) bool {
	return service != nil && service.Namespace == r.options.Namespace &&
		slices.ContainsFunc(r.options.Leafs, func(leaf Leaf) bool { return leaf.Name == service.Name })
}
