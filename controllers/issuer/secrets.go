package issuer

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/certificates"
)

// issuedByCertManager is cert-manager's annotation of the Secrets that it keeps.
const issuedByCertManager = "cert-manager.io/certificate-name"

// keepAuthority returns the authority that signs. One that is not stored is never used.
func (r *Reconciler) keepAuthority(ctx context.Context) (*certificates.Pair, error) {
	secret, err := r.readSecret(ctx, r.options.Authority)
	if err != nil {
		return nil, err
	}
	// What cannot be read counts as absent.
	present, _ := certificates.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	var names []string
	for _, leaf := range r.options.Leafs {
		names = append(names, leaf.names(r.options.Namespace)...)
	}
	authority, reason, err := r.options.Policy.Authority(present, r.options.Authority, names, r.options.Clock.Now())
	if err == nil && reason != "" {
		err = r.store(ctx, secret, authority, reason)
	}
	return authority, err
}

// keepLeaf sees to a certificate of the authority.
func (r *Reconciler) keepLeaf(ctx context.Context, leaf *Leaf, authority *certificates.Pair) error {
	secret, err := r.readSecret(ctx, leaf.Name)
	if err != nil {
		return err
	}
	present, _ := certificates.ParsePair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	issued, reason, err := r.options.Policy.Leaf(authority, present, leaf.names(r.options.Namespace), r.options.Clock.Now())
	if err == nil && reason != "" {
		err = r.store(ctx, secret, issued, reason)
	}
	return err
}

// readSecret returns a Secret that no other party keeps.
func (r *Reconciler) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := r.get(ctx, name, &secret); err != nil {
		return nil, err
	}
	if theirs := secret.Annotations[issuedByCertManager]; theirs != "" {
		return nil, fmt.Errorf("cert-manager keeps the Secret %s: delete its Certificate %s, and then the annotation %s of the Secret, or issue no certificates here",
			name, theirs, issuedByCertManager)
	}
	return &secret, nil
}

// get reads an object of the operator's namespace.
func (r *Reconciler) get(ctx context.Context, name string, object client.Object) error {
	err := r.options.LiveReader.Get(ctx, types.NamespacedName{Namespace: r.options.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: it is part of the manifests, apply them again", err)
	}
	return err
}

// store writes a certificate with its key, and leaves the other entries of the Secret.
func (r *Reconciler) store(ctx context.Context, former *corev1.Secret, pair *certificates.Pair, reason certificates.Reason) error {
	changed := former.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string][]byte{}
	}
	maps.Copy(changed.Data, map[string][]byte{corev1.TLSCertKey: pair.CertificatePEM, corev1.TLSPrivateKeyKey: pair.KeyPEM})
	if err := r.options.Client.Patch(ctx, changed, client.MergeFromWithOptions(former, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("store a certificate in the Secret %s: %w", former.Name, err)
	}
	logf.FromContext(ctx).Info("Issued a certificate", "secret", former.Name, "reason", string(reason), "notAfter", pair.Certificate.NotAfter)
	return nil
}
