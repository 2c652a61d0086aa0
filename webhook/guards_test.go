package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/webhook"
)

func TestGuardsAreGrantedOnlyWhereTheyAreEnforcedAndToUsersWithTheRight(t *testing.T) {
	byName := v1alpha1.Guard{Group: "apps", Resource: "deployments", Name: "web"}
	bySelector := v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{}}
	allow := func(authorizer.Attributes) (authorizer.Decision, error) { return authorizer.DecisionAllow, nil }
	deny := func(authorizer.Attributes) (authorizer.Decision, error) { return authorizer.DecisionNoOpinion, nil }
	allowBut := func(verb string) func(authorizer.Attributes) (authorizer.Decision, error) {
		return func(attributes authorizer.Attributes) (authorizer.Decision, error) {
			if attributes.GetVerb() == verb {
				return deny(attributes)
			}
			return allow(attributes)
		}
	}
	fail := func(authorizer.Attributes) (authorizer.Decision, error) {
		return authorizer.DecisionNoOpinion, errors.New("the API server is away")
	}
	ofWeb := []string{"create apps/deployments/web", "update apps/deployments/web", "delete apps/deployments/web"}
	ofMaps := []string{"create /configmaps/", "update /configmaps/", "delete /configmaps/"}
	for name, test := range map[string]struct {
		off       bool
		namespace string
		// configure changes the webhook configuration of config/guards.
		configure func(*admissionregistrationv1.ValidatingWebhookConfiguration)
		// failing is the verb of the reads that fail.
		failing string
		guards  []v1alpha1.Guard
		right   func(authorizer.Attributes) (authorizer.Decision, error)
		want    string
		// asked are the rights that were asked about.
		asked []string
	}{
		"by name":                              {guards: []v1alpha1.Guard{byName}, right: allow, asked: ofWeb},
		"by a selector":                        {guards: []v1alpha1.Guard{bySelector}, right: allow, asked: ofMaps},
		"the same right twice":                 {guards: []v1alpha1.Guard{bySelector, bySelector, byName}, right: allow, asked: slices.Concat(ofMaps, ofWeb)},
		"none":                                 {off: true, namespace: "plain", right: fail},
		"without the flag":                     {off: true, guards: []v1alpha1.Guard{byName}, right: allow, want: "spec.guards: Forbidden: are not enforced in this cluster"},
		"in a namespace that has not opted in": {namespace: "plain", guards: []v1alpha1.Guard{byName}, right: allow, want: "kubectl label namespace plain forrst.dev/guards=enabled"},
		"in the namespace of the operator":     {namespace: "forrst-system", guards: []v1alpha1.Guard{byName}, right: allow, want: `are not enforced in namespace "forrst-system", which their webhook configuration leaves out`},
		"without a webhook configuration": {guards: []v1alpha1.Guard{byName}, right: allow, want: "it has no webhook configuration for them",
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].Name = "guard.example.com"
			}},
		"of a resource that is not listed": {guards: []v1alpha1.Guard{byName, {Resource: "pods", Name: "a"}}, right: allow, want: "spec.guards[1].resource: Forbidden: pods may not be guarded"},
		"of a resource by its singular":    {guards: []v1alpha1.Guard{{Group: "apps", Resource: "deployment", Name: "web"}}, right: allow, want: "have plural names, such as deployments"},
		"of a resource of another group":   {guards: []v1alpha1.Guard{{Group: "batch", Resource: "deployments", Name: "web"}}, right: allow, want: "deployments.batch may not be guarded"},
		"of a resource whose deletion is not asked about": {guards: []v1alpha1.Guard{byName}, right: allow, want: "deployments.apps may not be guarded",
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				for i := range c.Webhooks[0].Rules {
					c.Webhooks[0].Rules[i].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
				}
			}},
		"with a webhook that leaves objects out by labels": {guards: []v1alpha1.Guard{byName}, right: allow, want: "are not enforced for all objects",
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}
			}},
		"with a webhook that leaves objects out by an expression": {guards: []v1alpha1.Guard{byName}, right: allow, want: "are not enforced for all objects",
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "free", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			}},
		"with a webhook that admits what it cannot ask about": {guards: []v1alpha1.Guard{byName}, right: allow, want: "are not enforced for all objects",
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			}},
		"with the empty selector that the API server sets": {guards: []v1alpha1.Guard{byName}, right: allow, asked: ofWeb,
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{}
			}},
		"with a reliable webhook besides one that is not": {guards: []v1alpha1.Guard{byName}, right: allow, asked: ofWeb,
			configure: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
				c.Webhooks = append(c.Webhooks, c.Webhooks[0])
				c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			}},
		"if the namespace cannot be read":     {failing: "get", guards: []v1alpha1.Guard{byName}, right: allow, want: "read the namespace"},
		"if the configuration cannot be read": {failing: "list", guards: []v1alpha1.Guard{byName}, right: allow, want: "read the webhook configurations"},
		"in a namespace that is gone":         {namespace: "gone", guards: []v1alpha1.Guard{byName}, right: allow, want: "read the namespace"},
		"without the rights": {guards: []v1alpha1.Guard{byName}, right: deny, asked: ofWeb[:1],
			want: `to guard deployments.apps "web" in namespace "guarding" you need the rights to create, update and delete; you may not create deployments.apps "web"`},
		"without the right to create": {guards: []v1alpha1.Guard{byName}, right: allowBut("create"), want: "you may not create", asked: ofWeb[:1]},
		"without the right to update": {guards: []v1alpha1.Guard{byName}, right: allowBut("update"), want: "you may not update", asked: ofWeb[:2]},
		"without the right to delete": {guards: []v1alpha1.Guard{bySelector}, right: allowBut("delete"), want: "you may not delete all configmaps", asked: ofMaps},
		"without an answer":           {guards: []v1alpha1.Guard{byName}, right: fail, want: "could not be found out; try again", asked: ofWeb[:1]},
		"with the rights to one of two": {guards: []v1alpha1.Guard{byName, bySelector}, want: "spec.guards[1]: to guard all configmaps", asked: slices.Concat(ofWeb, ofMaps[:1]),
			right: func(attributes authorizer.Attributes) (authorizer.Decision, error) {
				if attributes.GetResource() == "deployments" {
					return authorizer.DecisionAllow, nil
				}
				return authorizer.DecisionDeny, nil
			}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(clientgoscheme.AddToScheme(scheme))
			utilruntime.Must(v1alpha1.AddToScheme(scheme))
			configuration := guardsConfiguration(t)
			if test.configure != nil {
				test.configure(configuration)
			}
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(failing(test.failing)).WithObjects(
				namespaceWith("guarding", v1alpha1.GuardsEnabled), namespaceWith("plain", "disabled"), namespaceWith("forrst-system", v1alpha1.GuardsEnabled),
				configuration,
			).Build()
			var asked []string
			handler := &webhook.LockAdmission{
				Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), IsGuarding: !test.off,
				Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
				Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
					asked = append(asked, attributes.GetVerb()+" "+attributes.GetAPIGroup()+"/"+attributes.GetResource()+"/"+attributes.GetName())
					if attributes.GetNamespace() != "guarding" || attributes.GetUser().GetName() != "alice" || !attributes.IsResourceRequest() {
						t.Errorf("asked about %+v", attributes)
					}
					decision, err := test.right(attributes)
					return decision, "", err
				}),
			}
			namespace := "guarding"
			if test.namespace != "" {
				namespace = test.namespace
			}
			raw, err := json.Marshal(fixture.Manifest(namespace, "deploy:web", func(l *v1alpha1.Lock) { l.Spec.Guards = test.guards }))
			if err != nil {
				t.Fatal(err)
			}
			var create admission.Request
			create.Operation, create.Namespace, create.UserInfo = admissionv1.Create, namespace, authenticationv1.UserInfo{Username: "alice"}
			create.Object.Raw = raw
			response := handler.Handle(t.Context(), create)
			if response.Allowed != (test.want == "") || !response.Allowed && !strings.Contains(response.Result.Message, test.want) {
				t.Errorf("got %+v, want %q", response.Result, test.want)
			}
			if strings.Join(asked, ", ") != strings.Join(test.asked, ", ") {
				t.Errorf("asked about %q, want %q", asked, test.asked)
			}
		})
	}
}

// guardsConfiguration is that of config/guards.
func guardsConfiguration(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	text, err := os.ReadFile("../config/guards/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(text, &configuration); err != nil {
		t.Fatal(err)
	}
	return &configuration
}

// namespaceWith has the value of the opt-in, and the label that the API server gives each namespace.
func namespaceWith(name, value string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, v1alpha1.GuardsLabel: value}}}
}

// failing lets reads with the verb fail.
func failing(verb string) interceptor.Funcs {
	away := errors.New("the API server is away")
	return interceptor.Funcs{
		Get: func(ctx context.Context, reader client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if verb == "get" {
				return away
			}
			return reader.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if verb == "list" {
				return away
			}
			return reader.List(ctx, list, options...)
		},
	}
}
