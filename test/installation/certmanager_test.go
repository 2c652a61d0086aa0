package installation_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/certificates"
)

const injection = "cert-manager.io/inject-ca-from"

// certManager does what cert-manager and its cainjector do, as far as the chart needs it: it fills the Secrets
// that Certificates of [namespace] name, by the authority that their Issuer names, and writes the caBundle of
// the webhook configurations with the annotation. It follows the objects' own references alone.
type certManager struct {
	client client.Client
}

// startCertManager runs it until the test ends.
func (c *cluster) startCertManager(t *testing.T) {
	t.Helper()
	m := &certManager{client: c.objects}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var (
		running sync.WaitGroup
		last    error
	)
	running.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			// The next pass repeats what has failed, such as what depends on a Secret that is yet to come.
			if err := errors.Join(m.issueAll(ctx), m.injectAll(ctx)); ctx.Err() == nil {
				last = err
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		if t.Failed() && last != nil {
			t.Logf("cert-manager's stand-in: %v", last)
		}
	})
}

func (m *certManager) issueAll(ctx context.Context) error {
	list, err := m.list(ctx, schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "CertificateList"}, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	var names []string
	for _, certificate := range list {
		asked, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
		names = append(names, asked...)
	}
	var errs []error
	for _, certificate := range list {
		errs = append(errs, m.issue(ctx, certificate.Object, names))
	}
	return errors.Join(errs...)
}

// issue fills the Secret of a certificate unless it is there. An authority may issue for the names.
func (m *certManager) issue(ctx context.Context, certificate map[string]any, names []string) error {
	secret := &corev1.Secret{Type: corev1.SecretTypeTLS, ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: text(certificate, "spec", "secretName"),
		Annotations: map[string]string{"cert-manager.io/certificate-name": text(certificate, "metadata", "name")},
	}}
	if err := m.client.Get(ctx, client.ObjectKeyFromObject(secret), secret.DeepCopy()); !apierrors.IsNotFound(err) {
		return err
	}
	issuer := &unstructured.Unstructured{}
	issuer.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"})
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: text(certificate, "spec", "issuerRef", "name")}, issuer); err != nil {
		return err
	}
	var pair *certificates.Pair
	var authority []byte
	var err error
	if isAuthority, _, _ := unstructured.NestedBool(certificate, "spec", "isCA"); isAuthority {
		if _, isSelfSigned, _ := unstructured.NestedMap(issuer.Object, "spec", "selfSigned"); !isSelfSigned {
			return fmt.Errorf("the issuer of the authority is %v", issuer.Object["spec"])
		}
		if pair, err = certificates.NewAuthority(secret.Name, names, time.Now(), 24*time.Hour); err != nil {
			return err
		}
		authority = pair.CertificatePEM
	} else {
		by := &corev1.Secret{}
		if err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: text(issuer.Object, "spec", "ca", "secretName")}, by); err != nil {
			return err
		}
		signer, err := certificates.ParseAuthority(by.Data[corev1.TLSCertKey], by.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return err
		}
		asked, _, _ := unstructured.NestedStringSlice(certificate, "spec", "dnsNames")
		if pair, err = signer.Issue(asked, time.Now(), time.Hour); err != nil {
			return err
		}
		authority = signer.CertificatePEM
	}
	secret.Data = map[string][]byte{"ca.crt": authority, corev1.TLSCertKey: pair.CertificatePEM, corev1.TLSPrivateKeyKey: pair.KeyPEM}
	return m.client.Create(ctx, secret)
}

func (m *certManager) injectAll(ctx context.Context) error {
	var errs []error
	for _, kind := range []string{"Mutating", "Validating"} {
		list, err := m.list(ctx, schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind + "WebhookConfigurationList"})
		errs = append(errs, err)
		for _, configuration := range list {
			errs = append(errs, m.inject(ctx, configuration))
		}
	}
	return errors.Join(errs...)
}

func (m *certManager) inject(ctx context.Context, configuration unstructured.Unstructured) error {
	in, name, isAsked := strings.Cut(configuration.GetAnnotations()[injection], "/")
	if !isAsked {
		return nil
	}
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, certificate); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: in, Name: text(certificate.Object, "spec", "secretName")}, secret); err != nil {
		return err
	}
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(configuration.DeepCopy(), client.MergeFromWithOptimisticLock{})
	wanted, isDone := base64.StdEncoding.EncodeToString(secret.Data["ca.crt"]), true
	for index := range webhooks {
		webhook, _ := webhooks[index].(map[string]any)
		isDone = isDone && text(webhook, "clientConfig", "caBundle") == wanted
		if err := unstructured.SetNestedField(webhook, wanted, "clientConfig", "caBundle"); err != nil {
			return err
		}
	}
	if isDone {
		return nil
	}
	if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
		return err
	}
	return m.client.Patch(ctx, &configuration, patch)
}

func (m *certManager) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := m.client.List(ctx, list, options...)
	return list.Items, err
}

// text returns the field, or nothing.
func text(object map[string]any, path ...string) string {
	found, _, _ := unstructured.NestedString(object, path...)
	return found
}

// useCertManager has the replicas of the façade trust each other by the Secret that cert-manager has filled.
func (c *cluster) useCertManager(t *testing.T) {
	t.Helper()
	c.leaveCertificatesAlone(t)
	c.shareLinesBy(t, c.authority(t, "Secret", "lock-operator-facade"))
}

// leaveCertificatesAlone checks that the controllers have no right to what cert-manager writes.
func (c *cluster) leaveCertificatesAlone(t *testing.T) {
	t.Helper()
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: namespace, Name: "lock-operator-authority"},
		{Verb: "patch", Resource: "secrets", Namespace: namespace, Name: "lock-operator-facade"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "lock-operator"},
	} {
		review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: controllersUser, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		check(t, err)
		if review.Status.Allowed {
			t.Errorf("the controllers may %s %s", attributes.Verb, attributes.Resource)
		}
	}
}
