package doctor

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
)

var now = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

const exempt = "system:serviceaccount:forrst-system:lock-operator-controllers"

// installation is what the API server of a test has, and what it answers to the user.
type installation struct {
	user       string
	verbs      []string
	definition *apiextensionsv1.CustomResourceDefinition
	unserved   error
	webhooks   []admissionregistrationv1.ValidatingWebhook
	policies   []string
	bindings   map[string]string // of policies, by their suffixes
	// audited is the suffix of a policy whose binding refuses nothing, and ofOthers that of one which is not of the operator.
	audited, ofOthers string
	account           *corev1.ServiceAccount
	deployments       []*appsv1.Deployment
	namespace         *corev1.Namespace
	// These are the errors of dry runs: of a new lock, of one with a forged holder, and of a ConfigMap.
	admitted, forged, guarded error
	// unread are errors of reads, by the name of the type that is read into.
	unread map[string]error
}

// well is an installation that lacks nothing.
func well(t *testing.T) *installation {
	t.Helper()
	config := admissionregistrationv1.WebhookClientConfig{
		CABundle: authority(t, now.AddDate(9, 0, 0)),
		Service:  &admissionregistrationv1.ServiceReference{Namespace: "forrst-system", Name: "lock-operator-webhook"},
	}
	i := &installation{
		user: "ann", verbs: []string{"get", "list", "watch", "create", "update", "delete", "force-release"},
		definition: definition(specFields()...), webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: guardWebhook, ClientConfig: config}},
		bindings:  map[string]string{"-fence": "team-lock-operator-fence"},
		account:   &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "forrst-system", Name: "lock-operator-controllers"}},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.GuardsLabel: v1alpha1.GuardsEnabled}}},
		forged:    apierrors.NewInvalid(schema.GroupKind{Kind: "Lock"}, "x", nil),
		unread:    map[string]error{},
	}
	for _, need := range needs {
		i.webhooks = append(i.webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: need.name, ClientConfig: config, FailurePolicy: &need.failurePolicy,
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: need.operations, Rule: admissionregistrationv1.Rule{Resources: []string{need.resource}}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: operatorCondition, Expression: "!(request.userInfo.username in ['" + exempt + "'])",
			}},
		})
	}
	for _, policy := range policies {
		if policy.label == "" {
			i.bindings[policy.suffix] = "team-lock-operator" + policy.suffix
		}
	}
	for _, name := range i.bindings {
		i.policies = append(i.policies, name)
	}
	for _, name := range []string{"lock-operator-controllers", "lock-operator-facade", "lock-operator-webhook"} {
		i.deployments = append(i.deployments, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "forrst-system", Name: name, Labels: map[string]string{nameLabel: operatorName}},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "lock-operator:v0.1.0"}}},
			}},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		})
	}
	return i
}

// definition returns the definition of the type Lock, whose spec has the fields.
func definition(fields ...string) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, field := range fields {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "locks.forrst.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1alpha1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
			},
		}}},
	}
}

// authority returns a certificate in PEM that ends at the time.
func authority(t *testing.T, notAfter time.Time) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: notAfter}
	content, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content})
}

func (i *installation) webhook(name string) *admissionregistrationv1.ValidatingWebhook {
	return &i.webhooks[slices.IndexFunc(i.webhooks, func(webhook admissionregistrationv1.ValidatingWebhook) bool { return webhook.Name == name })]
}

// configurations returns the webhooks as config/ has them: those of the audit and of guards are validating ones.
func (i *installation) configurations() (validating *admissionregistrationv1.ValidatingWebhookConfiguration, mutating *admissionregistrationv1.MutatingWebhookConfiguration) {
	validating = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	mutating = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	for _, webhook := range i.webhooks {
		if webhook.Name == guardWebhook || strings.HasPrefix(webhook.Name, "audit.") {
			validating.Webhooks = append(validating.Webhooks, webhook)
			continue
		}
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: webhook.Name, ClientConfig: webhook.ClientConfig, Rules: webhook.Rules, FailurePolicy: webhook.FailurePolicy,
			NamespaceSelector: webhook.NamespaceSelector, MatchConditions: webhook.MatchConditions,
		})
	}
	return validating, mutating
}

// cluster is a client of the installation.
type cluster struct {
	client.WithWatch
	unserved error
}

// RESTMapper knows the type Lock, unless it is not served.
func (c cluster) RESTMapper() apimeta.RESTMapper { return mapper{c.WithWatch.RESTMapper(), c.unserved} }

type mapper struct {
	apimeta.RESTMapper
	unserved error
}

func (m mapper) RESTMapping(schema.GroupKind, ...string) (*apimeta.RESTMapping, error) {
	return nil, m.unserved
}

func (i *installation) cluster() client.WithWatch {
	validating, mutating := i.configurations()
	objects := []client.Object{validating, mutating}
	for _, name := range i.policies {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if i.ofOthers == "" || !strings.HasSuffix(name, i.ofOthers) {
			policy.Labels = map[string]string{nameLabel: operatorName}
		}
		objects = append(objects, policy)
	}
	for suffix, name := range i.bindings {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "of" + suffix}}
		binding.Spec.PolicyName = name
		if binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}; suffix == i.audited {
			binding.Spec.ValidationActions[0] = admissionregistrationv1.Audit
		}
		objects = append(objects, binding)
	}
	for _, deployment := range i.deployments {
		objects = append(objects, deployment)
	}
	for _, object := range []client.Object{i.definition, i.account, i.namespace} {
		if !reflect.ValueOf(object).IsNil() {
			objects = append(objects, object)
		}
	}
	unread := func(into any) error { return i.unread[reflect.TypeOf(into).Elem().Name()] }
	return cluster{unserved: i.unserved, WithWatch: interceptor.NewClient(fake.NewClientBuilder().WithScheme(session.Scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			switch object := object.(type) {
			case *authenticationv1.SelfSubjectReview:
				object.Status.UserInfo.Username = i.user
			case *authorizationv1.SelfSubjectAccessReview:
				object.Status.Allowed = slices.Contains(i.verbs, object.Spec.ResourceAttributes.Verb)
			case *corev1.ConfigMap:
				return i.guarded
			case *v1alpha1.Lock:
				if object.Spec.Holder != "" {
					return i.forged
				}
				return i.admitted
			}
			return nil
		},
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := unread(object); err != nil {
				return err
			}
			return next.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := unread(list); err != nil {
				return err
			}
			return next.List(ctx, list, options...)
		},
	})}
}

// sessionOf returns a session with the flags, at the time of the tests unless the options have another clock.
func sessionOf(t *testing.T, options session.Options, flags ...string) *session.Session {
	t.Helper()
	options.Streams = genericiooptions.NewTestIOStreamsDiscard()
	if options.Clock == nil {
		options.Clock = clocktesting.NewFakeClock(now)
	}
	s := session.New(options)
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (i *installation) examine(t *testing.T) Report {
	t.Helper()
	client := i.cluster()
	e := &examination{
		Session: sessionOf(t, session.Options{Cluster: client}, "-n", "shop", "--context", "far"), cluster: client, operatorNamespace: defaultNamespace,
	}
	e.judgeInstallation(t.Context())
	return e.Report
}
