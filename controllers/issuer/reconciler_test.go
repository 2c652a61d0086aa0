package issuer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/certificates"
	"forrst.dev/lock-operator/controllers/issuer"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
)

const namespace = "operator"

var start = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

// world is a cluster with the objects of the manifests, and a replica that issues.
type world struct {
	*testing.T
	client     client.Client
	clock      *clocktesting.FakePassiveClock
	options    issuer.Options
	reconciler *issuer.Reconciler
	leads      bool
	// refuse is asked before each write.
	refuse func(object client.Object) error
	// patches are the bodies of the writes.
	patches []string
}

func (w *world) IsLeader() bool          { return w.leads }
func (w *world) Gained() <-chan struct{} { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(start), leads: true, refuse: func(client.Object) error { return nil }}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	service := func(namespace, name string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name}}
	}
	address := "https://elsewhere.example.com"
	w.client = fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: meta("authority")}, &corev1.ConfigMap{ObjectMeta: meta("authority")},
		&corev1.Secret{ObjectMeta: meta("facade")}, &corev1.Secret{ObjectMeta: meta("webhook")},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "lock", ClientConfig: service(namespace, "webhook")},
			{Name: "url", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &address}},
		}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guards"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "guard", ClientConfig: service(namespace, "webhook")},
		}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "namespace", ClientConfig: service("tenant", "webhook")}, {Name: "name", ClientConfig: service(namespace, "other")},
		}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, inner client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := w.refuse(object); err != nil {
				return err
			}
			body, err := patch.Data(object)
			if err != nil {
				return err
			}
			w.patches = append(w.patches, object.GetName()+" "+string(body))
			return inner.Patch(ctx, object, patch, options...)
		},
	}).Build()
	w.options = issuer.Options{
		Client: w.client, LiveReader: w.client, Namespace: namespace, Authority: "authority",
		Leafs:  []issuer.Leaf{{Name: "facade", DNSNames: []string{"locks.example.com"}}, {Name: "webhook"}},
		Policy: certificates.DefaultPolicy(), Clock: w.clock, Leadership: w,
	}
	w.reconciler = issuer.New(w.options)
	return w
}

// after lets time pass, and reconciles.
func (w *world) after(d time.Duration) (ctrl.Result, error) {
	w.Helper()
	w.clock.SetTime(w.clock.Now().Add(d))
	return w.reconciler.Reconcile(w.Context(), ctrl.Request{})
}

// mustAfter is after without an error.
func (w *world) mustAfter(d time.Duration) {
	w.Helper()
	if _, err := w.after(d); err != nil {
		w.Fatal(err)
	}
}

func (w *world) secret(name string) *corev1.Secret {
	w.Helper()
	var secret corev1.Secret
	w.get(name, &secret)
	return &secret
}

func (w *world) get(name string, object client.Object) {
	w.Helper()
	key := client.ObjectKey{Name: name}
	switch object.(type) {
	case *corev1.Secret, *corev1.ConfigMap:
		key.Namespace = namespace
	}
	if err := w.client.Get(w.Context(), key, object); err != nil {
		w.Fatal(err)
	}
}

// bundles returns what the webhooks are trusted by, by their names.
func (w *world) bundles() map[string]string {
	w.Helper()
	found := map[string]string{}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	w.get("operator", &mutating)
	for _, webhook := range mutating.Webhooks {
		found[webhook.Name] = string(webhook.ClientConfig.CABundle)
	}
	for _, name := range []string{"guards", "foreign"} {
		var validating admissionregistrationv1.ValidatingWebhookConfiguration
		w.get(name, &validating)
		for _, webhook := range validating.Webhooks {
			found[webhook.Name] = string(webhook.ClientConfig.CABundle)
		}
	}
	return found
}

// wantTrust wants API servers and clients to trust the authority of the Secret.
func (w *world) wantTrust() {
	w.Helper()
	authority := string(w.secret("authority").Data["tls.crt"])
	var publication corev1.ConfigMap
	w.get("authority", &publication)
	if authority == "" || publication.Data["ca.crt"] != authority || strings.Contains(authority, "PRIVATE") {
		w.Errorf("published %q, want %q", publication.Data["ca.crt"], authority)
	}
	want := map[string]string{"lock": authority, "url": "", "guard": authority, "namespace": "", "name": ""}
	if got := w.bundles(); !maps.Equal(got, want) {
		w.Errorf("bundles %v, want %v", got, want)
	}
}

func TestEmptySecretsAreFilled(t *testing.T) {
	w := newWorld(t)
	w.mustAfter(0)
	w.wantTrust()
	for name, want := range map[string][]string{
		"facade":  {"facade.operator.svc", "facade.operator.svc.cluster.local", "facade.operator", "locks.example.com"},
		"webhook": {"webhook.operator.svc", "webhook.operator.svc.cluster.local", "webhook.operator"},
	} {
		pair, err := certificates.ParsePair(w.secret(name).Data["tls.crt"], w.secret(name).Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(pair.Certificate.DNSNames) != fmt.Sprint(want) {
			t.Errorf("%s: names %v", name, pair.Certificate.DNSNames)
		}
	}
	for _, patch := range w.patches {
		if !strings.Contains(patch, `"resourceVersion":`) {
			t.Errorf("an unconditional write of %s", strings.Fields(patch)[0])
		}
	}
	if len(w.patches) != 6 {
		t.Errorf("%d writes", len(w.patches))
	}
	w.patches = nil
	w.mustAfter(time.Hour)
	if len(w.patches) != 0 {
		t.Errorf("writes without a cause: %v", w.patches)
	}
}

func TestAReplicaThatDoesNotLeadDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.leads = false
	if result, err := w.after(0); err != nil || result.RequeueAfter != 0 || len(w.patches) != 0 {
		t.Errorf("%v, %v, %d writes", result, err, len(w.patches))
	}
	if got := testutil.CollectAndCount(w.reconciler.Metrics()); got != 0 {
		t.Errorf("%d series", got)
	}
	w.leads = true
	w.mustAfter(0)
	want := exposition.Of(&metric.CertificateExpiry, fmt.Sprintf("%s{certificate=%q} %d\n",
		metric.CertificateExpiry.Name, "authority", start.Add(w.options.Policy.AuthorityLifetime).Unix()))
	if err := testutil.CollectAndCompare(w.reconciler.Metrics(), strings.NewReader(want), metric.CertificateExpiry.Name); err != nil {
		t.Error(err)
	}
}

func TestTheAuthorityIsStoredBeforeItIsUsed(t *testing.T) {
	w := newWorld(t)
	w.refuse = func(object client.Object) error {
		if _, ok := object.(*corev1.Secret); ok && object.GetName() == "authority" {
			return errors.New("refused")
		}
		return nil
	}
	if _, err := w.after(0); err == nil || len(w.patches) != 0 {
		t.Errorf("%v, %d writes", err, len(w.patches))
	}
}

func TestAConfigurationThatCannotBeWrittenIsReportedAndKeepsNothingElseFromBeingDone(t *testing.T) {
	w := newWorld(t)
	w.refuse = func(object client.Object) error {
		if object.GetName() == "operator" {
			return errors.New("refused")
		}
		return nil
	}
	if _, err := w.after(0); err == nil || !strings.Contains(err.Error(), "write the caBundle of the webhook configuration operator: refused") {
		t.Error(err)
	}
	if bundles := w.bundles(); bundles["lock"] != "" || bundles["guard"] == "" || len(w.secret("facade").Data) == 0 {
		t.Errorf("bundles %v, certificate %q", bundles, w.secret("facade").Data["tls.crt"])
	}
}

func TestTheAuthorityIsExtendedForAllWhoTrustIt(t *testing.T) {
	w := newWorld(t)
	w.mustAfter(0)
	former := w.secret("authority").Data
	w.mustAfter(w.options.Policy.AuthorityLifetime * 3 / 4)
	w.wantTrust()
	now := w.secret("authority").Data
	if bytes.Equal(now["tls.crt"], former["tls.crt"]) || !bytes.Equal(now["tls.key"], former["tls.key"]) {
		t.Error("the authority is not extended with its key")
	}
}

// Users ask so for another certificate or authority.
func TestAnEmptiedSecretIsFilledAnew(t *testing.T) {
	w := newWorld(t)
	w.mustAfter(0)
	for _, name := range []string{"facade", "authority"} {
		secret := w.secret(name)
		former := secret.Data
		secret.Data = map[string][]byte{"other": []byte("stays")}
		if err := w.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		webhook := w.secret("webhook").Data["tls.crt"]
		w.mustAfter(time.Minute)
		now := w.secret(name).Data
		if len(now["tls.crt"]) == 0 || bytes.Equal(now["tls.crt"], former["tls.crt"]) || bytes.Equal(now["tls.key"], former["tls.key"]) || string(now["other"]) != "stays" {
			t.Errorf("%s: has %q", name, slices.Sorted(maps.Keys(now)))
		}
		if isAuthority := name == "authority"; isAuthority == bytes.Equal(w.secret("webhook").Data["tls.crt"], webhook) {
			t.Errorf("%s: the other certificate is of the wrong authority", name)
		}
	}
	w.wantTrust()
}

func TestWhatAnotherPartyHasChangedIsRepaired(t *testing.T) {
	for name, change := range map[string]func(*world) client.Object{
		"the ConfigMap": func(w *world) client.Object {
			var publication corev1.ConfigMap
			w.get("authority", &publication)
			publication.Data = map[string]string{"ca.crt": "broken"}
			return &publication
		},
		"a caBundle": func(w *world) client.Object {
			var mutating admissionregistrationv1.MutatingWebhookConfiguration
			w.get("operator", &mutating)
			mutating.Webhooks[0].ClientConfig.CABundle = []byte("broken")
			return &mutating
		},
		"a certificate": func(w *world) client.Object {
			secret := w.secret("facade")
			secret.Data["tls.crt"] = []byte("broken")
			return secret
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mustAfter(0)
			authority := w.secret("authority").Data["tls.crt"]
			if err := w.client.Update(t.Context(), change(w)); err != nil {
				t.Fatal(err)
			}
			w.mustAfter(time.Minute)
			w.wantTrust()
			if !bytes.Equal(w.secret("authority").Data["tls.crt"], authority) {
				t.Error("the authority is replaced")
			}
			if _, err := certificates.ParsePair(w.secret("facade").Data["tls.crt"], w.secret("facade").Data["tls.key"]); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatCertManagerKeepsIsLeftAlone(t *testing.T) {
	for name, writes := range map[string]int{"authority": 0, "facade": 5} {
		w := newWorld(t)
		secret := w.secret(name)
		secret.Annotations = map[string]string{"cert-manager.io/certificate-name": "theirs"}
		if err := w.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if _, err := w.after(0); err == nil || !strings.Contains(err.Error(), "delete its Certificate theirs") || len(w.patches) != writes {
			t.Errorf("%s: %v, %d writes", name, err, len(w.patches))
		}
	}
	w := newWorld(t)
	var guards admissionregistrationv1.ValidatingWebhookConfiguration
	w.get("guards", &guards)
	guards.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "operator/webhook"}
	if err := w.client.Update(t.Context(), &guards); err != nil {
		t.Fatal(err)
	}
	if _, err := w.after(0); err == nil || !strings.Contains(err.Error(), "cert-manager writes the caBundle of the webhook configuration guards") {
		t.Error(err)
	}
	if w.bundles()["guard"] != "" || w.bundles()["lock"] == "" {
		t.Errorf("bundles %v", w.bundles())
	}
}

// An installation that changes from cert-manager has its authority in the same Secret.
func TestTheAuthorityOfCertManagerIsTakenOver(t *testing.T) {
	w := newWorld(t)
	pair, err := certificates.NewAuthority("theirs", nil, start.AddDate(-1, 0, 0), w.options.Policy.AuthorityLifetime)
	if err != nil {
		t.Fatal(err)
	}
	secret := w.secret("authority")
	secret.Data = map[string][]byte{"tls.crt": pair.CertificatePEM, "tls.key": pair.KeyPEM}
	if err := w.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.mustAfter(0)
	w.wantTrust()
	if !bytes.Equal(w.secret("authority").Data["tls.crt"], pair.CertificatePEM) {
		t.Error("the authority is replaced")
	}
}

func TestAMissingObjectIsNamedAndKeepsNothingElseFromBeingIssued(t *testing.T) {
	w := newWorld(t)
	if err := w.client.Delete(t.Context(), w.secret("webhook")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.after(0); err == nil || !strings.Contains(err.Error(), `"webhook" not found: it is part of the manifests`) {
		t.Error(err)
	}
	w.wantTrust()
	if len(w.secret("facade").Data) != 2 {
		t.Error("the other certificate is not issued")
	}
	if err := w.client.Delete(t.Context(), w.secret("authority")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.after(time.Minute); err == nil || !strings.Contains(err.Error(), `"authority" not found: it is part of the manifests`) {
		t.Error(err)
	}
}

func TestASecretThatCannotBeReadIsNotTakenForAnEmptyOne(t *testing.T) {
	w := newWorld(t)
	w.mustAfter(0)
	w.patches = nil
	w.options.LiveReader = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if key.Name == "facade" {
				return errors.New("away")
			}
			return inner.Get(ctx, key, object, options...)
		},
	})
	w.reconciler = issuer.New(w.options)
	if _, err := w.after(time.Minute); err == nil || len(w.patches) != 0 {
		t.Errorf("%v, %d writes", err, len(w.patches))
	}
}

func TestAPartyThatChangesThingsBackCausesOneWriteASecond(t *testing.T) {
	w := newWorld(t)
	w.mustAfter(0)
	w.patches = nil
	result, err := w.after(time.Second / 4)
	if err != nil || result.RequeueAfter != time.Second*3/4 {
		t.Errorf("%v, %v", result, err)
	}
}
