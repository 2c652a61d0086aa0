package issuer

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/certificates"
)

// keepAuthority sees to an authority that signs, and stores it with all that clients must trust.
func (r *Reconciler) keepAuthority(ctx context.Context, objects *objects, state *certificates.State, now time.Time) error {
	reason := r.options.Policy.AuthorityDue(state, now)
	if reason != "" {
		var names []string
		for _, leaf := range state.Leafs {
			names = append(names, leaf.DNSNames...)
		}
		pair, err := certificates.NewAuthority(r.options.Authority, names, now, r.options.Policy.AuthorityLifetime)
		if err != nil {
			return err
		}
		if state.Authority != nil {
			state.Former = append([]*x509.Certificate{state.Authority.Certificate}, state.Former...)
		}
		state.Authority = pair
	}
	err := r.store(ctx, objects.authority, reason != "", map[string][]byte{
		corev1.TLSCertKey:       state.Authority.CertificatePEM,
		corev1.TLSPrivateKeyKey: state.Authority.KeyPEM,
		authorityKey:            certificates.FormatBundle(r.options.Policy.Bundle(state, now)),
	})
	if err != nil {
		return fmt.Errorf("store the authority: %w", err)
	}
	if reason != "" {
		logf.FromContext(ctx).Info("Made a new authority for certificates", "secret", objects.authority.Name,
			"reason", string(reason), "notAfter", state.Authority.Certificate.NotAfter)
	}
	return nil
}

// inject lets the API servers trust the authorities when they call webhooks of the operator, and notes
// whether all of them did so before.
func (r *Reconciler) inject(ctx context.Context, objects *objects, state *certificates.State, trusted []*x509.Certificate) error {
	bundle := certificates.FormatBundle(trusted)
	state.IsInjected = true
	var failed error
	for _, configuration := range objects.configurations {
		changed, _ := configuration.DeepCopyObject().(client.Object)
		isChanged := false
		for _, config := range r.options.ownWebhooks(changed) {
			isChanged = isChanged || !bytes.Equal(config.CABundle, bundle)
			config.CABundle = bundle
		}
		if isChanged {
			failed = errors.Join(failed, r.patchConfiguration(ctx, configuration, changed))
			state.IsInjected = false
		}
	}
	return failed
}

// patchConfiguration writes the bundles, and nothing else of a webhook configuration.
func (r *Reconciler) patchConfiguration(ctx context.Context, former, changed client.Object) error {
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

// publish tells clients what to trust, and since when.
func (r *Reconciler) publish(ctx context.Context, objects *objects, state *certificates.State, trusted []*x509.Certificate, now time.Time) error {
	bundle := string(certificates.FormatBundle(trusted))
	former := objects.publication
	if former.Data[authorityKey] == bundle && !state.PublishedAt.IsZero() && !state.PublishedAt.After(now) {
		return nil
	}
	changed := former.DeepCopy()
	changed.Data = withEntry(former.Data, authorityKey, bundle)
	changed.Annotations = withEntry(former.Annotations, publishedAtAnnotation, now.UTC().Format(time.RFC3339))
	if err := r.options.Client.Patch(ctx, changed, client.MergeFromWithOptions(former, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("publish the authority: %w", err)
	}
	state.Published, state.PublishedAt = trusted, now
	return nil
}

// issue issues the certificates that are due.
func (r *Reconciler) issue(ctx context.Context, objects *objects, state *certificates.State, now time.Time) error {
	var failed error
	for index := range state.Leafs {
		leaf, secret := &state.Leafs[index], objects.leafs[index]
		reason := r.options.Policy.LeafDue(state, leaf, now)
		if reason == "" {
			continue
		}
		pair, err := r.options.Policy.Renew(state, leaf, now)
		if err == nil {
			err = r.store(ctx, secret, true, map[string][]byte{corev1.TLSCertKey: pair.CertificatePEM, corev1.TLSPrivateKeyKey: pair.KeyPEM})
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("issue the certificate %s: %w", secret.Name, err))
			continue
		}
		logf.FromContext(ctx).Info("Issued a certificate", "secret", secret.Name, "reason", string(reason), "notAfter", pair.Certificate.NotAfter)
	}
	return failed
}

// store writes entries of a Secret unless it has them, and leaves others. It takes off the request for
// something new if that is answered.
func (r *Reconciler) store(ctx context.Context, former *corev1.Secret, isAnswer bool, entries map[string][]byte) error {
	changed := former.DeepCopy()
	isSame := true
	for key, value := range entries {
		isSame = isSame && bytes.Equal(former.Data[key], value)
		changed.Data = withEntry(changed.Data, key, value)
	}
	if isAnswer {
		delete(changed.Annotations, rotateAnnotation)
	} else if isSame {
		return nil
	}
	if err := checkKeeper(former); err != nil {
		return err
	}
	return r.options.Client.Patch(ctx, changed, client.MergeFromWithOptions(former, client.MergeFromWithOptimisticLock{}))
}

// withEntry returns a copy of the map with the entry.
func withEntry[V any](former map[string]V, key string, value V) map[string]V {
	changed := maps.Clone(former)
	if changed == nil {
		changed = map[string]V{}
	}
	changed[key] = value
	return changed
}
