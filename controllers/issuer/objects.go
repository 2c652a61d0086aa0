package issuer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/certificates"
)

// authorityKey is the key of what clients must trust, in the Secret of the authority and in the ConfigMap.
const authorityKey = "ca.crt"

const (
	// publishedAtAnnotation is when the ConfigMap got its present contents.
	publishedAtAnnotation = "forrst.dev/published-at"
	// rotateAnnotation with any value asks for another authority or certificate. It is removed with the answer.
	rotateAnnotation = "forrst.dev/rotate"
	// Annotations of cert-manager at what it writes itself.
	issuedByCertManager   = "cert-manager.io/certificate-name"
	injectedByCertManager = "cert-manager.io/inject-ca-from"
)

// objects are what the certificates are kept in.
type objects struct {
	authority   *corev1.Secret
	publication *corev1.ConfigMap
	// leafs are the Secrets of Options.Leafs. One that is missing has no resourceVersion.
	leafs []*corev1.Secret
	// configurations are all webhook configurations of the cluster.
	configurations []client.Object
}

func (r *Reconciler) read(ctx context.Context) (*objects, error) {
	found := &objects{authority: &corev1.Secret{}, publication: &corev1.ConfigMap{}}
	err := errors.Join(
		r.get(ctx, r.options.Authority, found.authority), r.get(ctx, r.options.Authority, found.publication),
		checkKeeper(found.authority))
	for _, leaf := range r.options.Leafs {
		secret := &corev1.Secret{}
		err = errors.Join(err, client.IgnoreNotFound(r.get(ctx, leaf.Name, secret)))
		secret.Name = leaf.Name
		found.leafs = append(found.leafs, secret)
	}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	err = errors.Join(err, r.options.Client.List(ctx, &mutating), r.options.Client.List(ctx, &validating))
	for index := range mutating.Items {
		found.configurations = append(found.configurations, &mutating.Items[index])
	}
	for index := range validating.Items {
		found.configurations = append(found.configurations, &validating.Items[index])
	}
	return found, err
}

// get reads an object of the operator's namespace.
func (r *Reconciler) get(ctx context.Context, name string, object client.Object) error {
	err := r.options.LiveReader.Get(ctx, types.NamespacedName{Namespace: r.options.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %s", err, applyAgain)
	}
	return err
}

// applyAgain is what to do when an object is missing.
const applyAgain = "it is part of the manifests, apply them again"

// checkKeeper returns an error if the Secret is missing, or is another party's.
func checkKeeper(secret *corev1.Secret) error {
	if secret.ResourceVersion == "" {
		return fmt.Errorf("the Secret %s is missing: %s", secret.Name, applyAgain)
	}
	if theirs := secret.Annotations[issuedByCertManager]; theirs != "" {
		return fmt.Errorf("cert-manager keeps the Secret %s: delete its Certificate %s, and then the annotation %s of the Secret, or issue no certificates here",
			secret.Name, theirs, issuedByCertManager)
	}
	return nil
}

// state returns what the objects hold. What cannot be read counts as absent.
func (o *objects) state(options *Options) *certificates.State {
	state := &certificates.State{
		Former:      certificates.ParseBundle(o.authority.Data[authorityKey]),
		Published:   certificates.ParseBundle([]byte(o.publication.Data[authorityKey])),
		IsRequested: isRequested(o.authority),
	}
	if pair, err := certificates.ParseAuthority(o.authority.Data[corev1.TLSCertKey], o.authority.Data[corev1.TLSPrivateKeyKey]); err == nil {
		state.Authority = pair
	}
	if at, err := time.Parse(time.RFC3339, o.publication.Annotations[publishedAtAnnotation]); err == nil {
		state.PublishedAt = at
	}
	for index, secret := range o.leafs {
		leaf := certificates.Leaf{DNSNames: options.Leafs[index].names(options.Namespace), IsRequested: isRequested(secret)}
		if pair, err := certificates.ParsePair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err == nil {
			leaf.Pair = pair
		}
		state.Leafs = append(state.Leafs, leaf)
	}
	return state
}

func isRequested(object client.Object) bool {
	_, ok := object.GetAnnotations()[rotateAnnotation]
	return ok
}

// ownWebhooks returns how the webhooks of a configuration are called that are at one of the Services which
// certificates are issued for.
func (o *Options) ownWebhooks(configuration client.Object) []*admissionregistrationv1.WebhookClientConfig {
	var all []*admissionregistrationv1.WebhookClientConfig
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for index := range configuration.Webhooks {
			all = append(all, &configuration.Webhooks[index].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for index := range configuration.Webhooks {
			all = append(all, &configuration.Webhooks[index].ClientConfig)
		}
	}
	return slices.DeleteFunc(all, func(config *admissionregistrationv1.WebhookClientConfig) bool {
		service := config.Service
		return service == nil || service.Namespace != o.Namespace ||
			!slices.ContainsFunc(o.Leafs, func(leaf Leaf) bool { return leaf.Name == service.Name })
	})
}
