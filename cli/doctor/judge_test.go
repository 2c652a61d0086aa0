package doctor

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/golden"
)

var now = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

const exempt = "system:serviceaccount:forrst-system:lock-operator-controllers"

// untrusted is the error of a server whose certificate an unknown authority has signed.
var untrusted = &url.Error{Op: "Get", URL: "https://x", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}

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

// definition returns the definition of the type Lock with one version, whose spec has the fields.
func definition(version string, fields ...string) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, field := range fields {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: version, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
			},
		}}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
		}}},
	}
}

// certificate returns one of cert-manager.
func certificate(ready string, notAfter time.Time) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "lock-operator-webhook"},
		"status": map[string]any{
			"notAfter": notAfter.Format(time.RFC3339), "conditions": []any{map[string]any{"type": "Ready", "status": ready, "message": "of the issuer"}},
		},
	}}
}

// well are the facts of an installation that lacks nothing.
func well(t *testing.T) *Facts {
	t.Helper()
	config := admissionregistrationv1.WebhookClientConfig{
		CABundle: authority(t, now.AddDate(9, 0, 0)),
		Service:  &admissionregistrationv1.ServiceReference{Namespace: "forrst-system", Name: "lock-operator-webhook"},
	}
	webhooks := []admissionregistrationv1.ValidatingWebhook{{Name: guardWebhook, ClientConfig: config}}
	for _, need := range needs {
		webhooks = append(webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: need.name, ClientConfig: config, FailurePolicy: &need.failurePolicy,
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: need.operations, Rule: admissionregistrationv1.Rule{Resources: []string{need.resource}}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: operatorCondition, Expression: "!(request.userInfo.username in ['" + exempt + "'])",
			}},
		})
	}
	inForce := []string{"team-lock-operator-fence"}
	for _, policy := range policies {
		inForce = append(inForce, "team-lock-operator"+policy.suffix)
	}
	var deployments []appsv1.Deployment
	for _, name := range []string{"lock-operator-controllers", "lock-operator-facade", "lock-operator-webhook"} {
		deployments = append(deployments, appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "forrst-system", Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "lock-operator:v0.1.0"}}},
			}},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		})
	}
	return &Facts{
		Namespace: "shop", OperatorNamespace: "forrst-system", Program: "v0.1.0", Local: now, Server: now,
		Kubernetes:   Answer[version.Info]{Value: version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}},
		Self:         Answer[authenticationv1.UserInfo]{Value: authenticationv1.UserInfo{Username: "ann"}},
		Definition:   Answer[*apiextensionsv1.CustomResourceDefinition]{Value: definition("v1alpha1", "guards", "holderUID")},
		Rights:       Answer[[]string]{Value: slices.Clone(verbs)},
		Webhooks:     Answer[[]admissionregistrationv1.ValidatingWebhook]{Value: webhooks},
		Policies:     Answer[Policies]{Value: Policies{InForce: inForce}},
		Kubectl:      func(args ...string) string { return "kubectl " + strings.Join(args, " ") + " --context far" },
		Admitted:     Answer[*v1alpha1.Lock]{Value: &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Holder: "ann"}}},
		Forged:       Answer[*v1alpha1.Lock]{Err: apierrors.NewInvalid(schema.GroupKind{Kind: "Lock"}, "x", nil)},
		Deployments:  Answer[[]appsv1.Deployment]{Value: deployments},
		Certificates: Answer[[]unstructured.Unstructured]{Value: []unstructured.Unstructured{certificate("True", now.AddDate(0, 2, 0))}},
		Labels:       Answer[map[string]string]{Value: map[string]string{v1alpha1.GuardsLabel: v1alpha1.GuardsEnabled}},
	}
}

func text(t *testing.T, findings Report) string {
	t.Helper()
	content, err := json.MarshalIndent(findings, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(content) + "\n"
}

func TestFindsNothingWrongWithAWholeInstallation(t *testing.T) {
	findings := Judge(well(t))
	if worst := findings.Worst(); worst != OK {
		t.Errorf("it is %s", worst)
	}
	golden.Check(t, "well.json", text(t, findings))
}

func webhookOf(facts *Facts, name string) *admissionregistrationv1.ValidatingWebhook {
	webhooks := facts.Webhooks.Value
	return &webhooks[slices.IndexFunc(webhooks, func(webhook admissionregistrationv1.ValidatingWebhook) bool { return webhook.Name == name })]
}

func lockWebhookOf(facts *Facts) *admissionregistrationv1.ValidatingWebhook {
	return webhookOf(facts, lockWebhook)
}

// without takes the webhook of the name out.
func without(facts *Facts, name string) {
	webhookOf(facts, name).Name = "of.example.com"
}

func TestFindsWhatIsWrong(t *testing.T) {
	resource := schema.GroupResource{Group: "forrst.dev", Resource: "locks"}
	notFound := apierrors.NewNotFound(resource, "x")
	calling := func(why string) error {
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %s", lockWebhook, why))
	}
	ignore := admissionregistrationv1.Ignore
	terminating := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue}
	for name, test := range map[string]struct {
		breaks func(*Facts)
		status Status
		want   string
	}{
		"an API server that is away":   {func(f *Facts) { f.Kubernetes.Err = errors.New("refused") }, Fail, "does not answer"},
		"an old Kubernetes":            {func(f *Facts) { f.Kubernetes.Value.Minor = "33" }, Fail, "needs 1.34"},
		"a fast clock":                 {func(f *Facts) { f.Local = now.Add(time.Minute) }, Warn, "1m0s ahead of"},
		"a slow clock":                 {func(f *Facts) { f.Local = now.Add(-time.Minute) }, Warn, "1m0s behind"},
		"no definition":                {func(f *Facts) { f.Definition.Err = notFound }, Fail, "does not know Locks"},
		"a definition not established": {func(f *Facts) { f.Definition.Value.Status.Conditions = nil }, Fail, "not established"},
		"an old definition":            {func(f *Facts) { f.Definition.Value = definition("v1alpha1", "guards") }, Fail, "lacks spec.holderUID"},
		"a version not served":         {func(f *Facts) { f.Definition.Value.Spec.Versions[0].Served = false }, Fail, "and not v1alpha1"},
		"another version":              {func(f *Facts) { f.Definition.Value = definition("v1") }, Fail, "serves the versions v1"},
		"no right to create":           {func(f *Facts) { f.Rights.Value = slices.Delete(f.Rights.Value, 3, 4) }, Warn, "may not create locks"},
		"a definition that is deleted": {func(f *Facts) { f.Definition.Value.DeletionTimestamp = &metav1.Time{Time: now} }, Fail, "is being deleted, and all Locks with it"},
		"a definition that terminates": {func(f *Facts) {
			f.Definition.Value.Status.Conditions = append(f.Definition.Value.Status.Conditions, terminating)
		}, Fail, "kubectl get locks.forrst.dev -A --context far"},
		"a definition that has no effect": {func(f *Facts) {
			f.Served = &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "forrst.dev", Kind: "Lock"}}
		}, Fail, "does not serve Locks: no matches"},
		"fields of another version": {func(f *Facts) {
			f.Definition.Value.Spec.Versions = append(definition("v1alpha1").Spec.Versions, definition("v1", neededFields...).Spec.Versions...)
		}, Fail, "lacks spec.guards"},
		"a definition that is not read": {func(f *Facts) { f.Definition.Err = errors.New("timeout") }, Fail, "its definition could not be read: timeout"},
		"no webhook of Locks":           {func(f *Facts) { without(f, lockWebhook) }, Fail, "no webhook configuration has lock.forrst.dev"},
		"no webhook of Jobs":            {func(f *Facts) { without(f, "job.forrst.dev") }, Fail, "no webhook configuration has job.forrst.dev"},
		"no webhook of the audit":       {func(f *Facts) { without(f, "audit.lock.forrst.dev") }, Fail, "no webhook configuration has audit.lock.forrst.dev"},
		"two webhook configurations":    {func(f *Facts) { f.Webhooks.Value = append(f.Webhooks.Value, *lockWebhookOf(f)) }, Fail, "2 webhook configurations have lock.forrst.dev"},
		"Jobs whose changes are not judged": {func(f *Facts) {
			webhookOf(f, "job.forrst.dev").Rules[0].Operations = []admissionregistrationv1.OperationType{"CREATE"}
		}, Fail, "job.forrst.dev is not asked about the operation UPDATE of jobs"},
		"an audit that keeps namespaces": {func(f *Facts) { webhookOf(f, "audit.lock.forrst.dev").FailurePolicy = nil }, Fail, "is Fail, and not Ignore"},
		"webhooks that are not read":     {func(f *Facts) { f.Webhooks.Err = errors.New("timeout") }, Fail, "could not be read: timeout"},
		"no authority of Jobs":           {func(f *Facts) { webhookOf(f, "job.forrst.dev").ClientConfig.CABundle = nil }, Fail, "no caBundle"},
		"no policy for Jobs":             {func(f *Facts) { f.Policies.Value.InForce = f.Policies.Value.InForce[:4] }, Fail, "lock-operator-jobs is not in force"},
		"a binding of a missing policy":  {func(f *Facts) { f.Policies.Value.Dangling = []string{"shop of lock-operator-keys"} }, Fail, "shop of lock-operator-keys"},
		"Jobs that are to be restricted": {func(f *Facts) { f.Labels.Value["forrst.dev/job-locks"] = "restricted" }, Fail, "kubectl label namespace shop forrst.dev/job-locks- --context far"},
		"an unknown caller":              {func(f *Facts) { f.Kubernetes.Err = apierrors.NewUnauthorized("x") }, Fail, "it does not know you: x"},
		"a caller who may not be another": {func(f *Facts) {
			f.Kubernetes.Err = apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "bob", errors.New(`User "ann" cannot impersonate resource "users"`))
		}, Fail, "it does not let you act as another user"},
		"a caller who is refused":     {func(f *Facts) { f.Kubernetes.Err = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("x")) }, Fail, "it refuses you"},
		"a wrong authority":           {func(f *Facts) { f.Kubernetes.Err = untrusted }, Fail, "its certificate is not trusted"},
		"a certificate of the caller": {func(f *Facts) { f.Kubernetes.Err = errors.New("remote error: tls: expired certificate") }, Fail, "does not accept your certificate"},
		"a plug-in that is missing":   {func(f *Facts) { f.Kubernetes.Err = errors.New("getting credentials: exec: x not found") }, Fail, "your credentials were not to be had"},
		"a server that is overloaded": {func(f *Facts) { f.Kubernetes.Err = apierrors.NewTooManyRequests("x", 1) }, Fail, "it answers with an error"},
		"a webhook that is ignored":   {func(f *Facts) { lockWebhookOf(f).FailurePolicy = &ignore }, Fail, "failurePolicy"},
		"a webhook not asked of deletes": {func(f *Facts) {
			lockWebhookOf(f).Rules[0].Operations = []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
		}, Fail, "the operation DELETE"},
		"a selector of namespaces": {func(f *Facts) {
			lockWebhookOf(f).NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, Warn, "leaves namespaces out"},
		"no authority":                      {func(f *Facts) { lockWebhookOf(f).ClientConfig.CABundle = nil }, Fail, "no caBundle"},
		"an authority that is none":         {func(f *Facts) { lockWebhookOf(f).ClientConfig.CABundle = []byte("x") }, Fail, "holds no certificate"},
		"an authority that has expired":     {func(f *Facts) { lockWebhookOf(f).ClientConfig.CABundle = authority(t, now.Add(-time.Hour)) }, Fail, "has expired"},
		"an authority about to expire":      {func(f *Facts) { lockWebhookOf(f).ClientConfig.CABundle = authority(t, now.Add(time.Hour)) }, Warn, "expires on"},
		"no exempted user":                  {func(f *Facts) { lockWebhookOf(f).MatchConditions = nil }, Warn, "exempts no user"},
		"a caller who is exempted":          {func(f *Facts) { f.Self.Value.Username, f.Admitted.Value.Spec.Holder = exempt, exempt }, Warn, "nothing judges or audits"},
		"an exempted user who is missing":   {func(f *Facts) { f.Missing.Value = []string{exempt} }, Fail, "does not exist"},
		"a webhook that is not called":      {func(f *Facts) { f.Admitted.Err = errors.New("holder and times are not stamped: x") }, Fail, "no webhook judges"},
		"a webhook that is away":            {func(f *Facts) { f.Admitted.Err = calling("connection refused") }, Fail, "does not answer: failed to call"},
		"a webhook that is not there":       {func(f *Facts) { f.Admitted.Err = calling(refusedPost) }, Fail, "bring it back: kubectl get pods -A -l app.kubernetes.io/name=lock-operator --context far"},
		"guards and a webhook that is away": {func(f *Facts) { f.Admitted.Err = calling(refusedPost) }, Fail, "where every write of a listed resource fails"},
		"guards whose webhook alone is away": {func(f *Facts) {
			f.Guarded = apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %s", guardWebhook, refusedPost))
		}, Fail, "where every write of a listed resource fails"},
		"guards and another webhook that is away": {func(f *Facts) {
			f.Guarded = apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %s", "of.example.com", refusedPost))
		}, OK, "and in force in namespace shop"},
		"a webhook without pods":           {func(f *Facts) { f.Admitted.Err = calling("no endpoints available") }, Fail, "component=webhook"},
		"a webhook that is not trusted":    {func(f *Facts) { f.Admitted.Err = calling("x509: unknown authority") }, Fail, "does not trust"},
		"a webhook that is not reached":    {func(f *Facts) { f.Admitted.Err = calling("context deadline exceeded") }, Fail, "network"},
		"a policy that refuses":            {func(f *Facts) { f.Admitted.Err = apierrors.NewForbidden(resource, "x", errors.New("policy")) }, Warn, "is refused"},
		"a namespace that is missing":      {func(f *Facts) { f.Admitted.Err = notFound }, Fail, "see that the namespace exists"},
		"another holder than the caller":   {func(f *Facts) { f.Admitted.Value.Spec.Holder = "bob" }, Fail, `held by "bob"`},
		"a forged holder that is admitted": {func(f *Facts) { f.Forged.Err = nil }, Fail, "forged holder would be admitted"},
		"a replica that is not ready":      {func(f *Facts) { f.Deployments.Value[0].Status.ReadyReplicas = 1 }, Warn, "1 of 2 replicas"},
		"a Deployment without replicas":    {func(f *Facts) { f.Deployments.Value[0].Status.ReadyReplicas = 0 }, Fail, "0 of 2 replicas"},
		"two images":                       {func(f *Facts) { f.Deployments.Value[0].Spec.Template.Spec.Containers[0].Image = "lock-operator:v0.2.0" }, Warn, "different images"},
		"a certificate that has expired":   {func(f *Facts) { f.Certificates.Value[0] = certificate("True", now.Add(-time.Hour)) }, Fail, "is not valid"},
		"a certificate not renewed":        {func(f *Facts) { f.Certificates.Value[0] = certificate("False", now.Add(time.Hour)) }, Warn, "is not renewed: of the issuer"},
		"guards that are not installed":    {func(f *Facts) { without(f, guardWebhook) }, Fail, "has opted in, and no webhook configuration has guard.forrst.dev"},
		"no guards":                        {func(f *Facts) { without(f, guardWebhook); f.Labels.Value = nil }, OK, "they are not installed, so a freeze is refused"},
		"guards without the fence":         {func(f *Facts) { f.Policies.Value.InForce = f.Policies.Value.InForce[1:] }, Fail, "lock-operator-fence is not in force"},
		"guards that are not asked for":    {func(f *Facts) { f.Labels.Value = nil }, OK, "has not opted in: kubectl label namespace"},
		"two webhooks of guards":           {func(f *Facts) { f.Webhooks.Value = append(f.Webhooks.Value, *webhookOf(f, guardWebhook)) }, Warn, "2 webhook configurations ask about guarded"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := well(t)
			test.breaks(facts)
			findings := Judge(facts)
			if worst := findings.Worst(); worst != test.status {
				t.Errorf("it is %s, want %s", worst, test.status)
			}
			all := text(t, findings)
			if !strings.Contains(strings.ReplaceAll(all, `\"`, `"`), test.want) {
				t.Errorf("%q is not said:\n%s", test.want, all)
			}
			for _, finding := range findings {
				if (finding.Status == Warn || finding.Status == Fail) && finding.Do == "" {
					t.Errorf("it is not said what to do: %v", finding)
				}
			}
		})
	}
}

// What is not installed explains all others, and nothing else is to be guessed.
func TestStopsWhereNothingIsInstalled(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, "locks.forrst.dev")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "locks.forrst.dev", nil)
	for name, breaks := range map[string]func(*Facts){
		"to an administrator": func(f *Facts) {
			f.Definition.Err, f.Served = notFound, &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "forrst.dev", Kind: "Lock"}}
		},
		"to others": func(f *Facts) {
			f.Definition.Err, f.Served = forbidden, &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "forrst.dev", Kind: "Lock"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := well(t)
			breaks(facts)
			findings := Judge(facts)
			if last := findings[len(findings)-1]; len(findings) != 3 || last.Status != Fail || !strings.Contains(last.Message, "lock-operator is not installed") {
				t.Errorf("got %s", text(t, findings))
			}
		})
	}
}

// refusedPost is how the API server says that nothing listens.
const refusedPost = `Post "https://lock-operator-webhook.forrst-system.svc:443/mutate?timeout=5s": dial tcp 10.96.0.7:443: connect: connection refused`

// A caller who may read little must not be told that all is well, nor that something is wrong.
func TestSaysWhatItSkips(t *testing.T) {
	facts := well(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", nil)
	facts.Definition.Err, facts.Webhooks.Err, facts.Policies.Err, facts.Missing.Err = forbidden, forbidden, forbidden, forbidden
	facts.Webhooks.Value, facts.Policies.Value = nil, Policies{}
	facts.Certificates.Value, facts.Deployments.Err, facts.Certificates.Err, facts.Labels.Err = nil, forbidden, forbidden, forbidden
	facts.Admitted.Err = errMayNotCreate
	facts.Rights.Value = verbs[:3]
	golden.Check(t, "few_rights.json", text(t, Judge(facts)))
}

func TestJudgesAFacade(t *testing.T) {
	for name, test := range map[string]struct {
		breaks func(*FacadeFacts)
		status Status
		want   string
	}{
		"nothing":                          {func(*FacadeFacts) {}, OK, "is ready"},
		"a façade that is away":            {func(f *FacadeFacts) { f.Ready.Err = errors.New("refused") }, Fail, "does not answer"},
		"a certificate that is unknown":    {func(f *FacadeFacts) { f.Ready.Err = untrusted }, Fail, "--certificate-authority"},
		"another server":                   {func(f *FacadeFacts) { f.Ready.Value.Status = 404 }, Fail, "no façade"},
		"a façade that stops":              {func(f *FacadeFacts) { f.Ready.Value.Status = 503 }, Fail, "not ready"},
		"a façade at its limits":           {func(f *FacadeFacts) { f.Saturated.Value = Probe{Status: 503, Text: "waiting"} }, Warn, "all callers: waiting"},
		"a certificate that has expired":   {func(f *FacadeFacts) { f.Ready.Value.NotAfter = now.Add(-time.Hour) }, Fail, "has expired"},
		"a certificate about to expire":    {func(f *FacadeFacts) { f.Ready.Value.NotAfter = now.Add(time.Hour) }, Warn, "expires on"},
		"a caller who is not known":        {func(f *FacadeFacts) { f.Listed = lock.ErrUnauthenticated }, Fail, "does not know you"},
		"a caller without rights":          {func(f *FacadeFacts) { f.Listed = lock.ErrForbidden }, Warn, "lock-operator-view"},
		"a list that is not answered":      {func(f *FacadeFacts) { f.Listed = lock.ErrUnavailable }, Fail, "is not answered"},
		"a clock that is wrong by minutes": {func(f *FacadeFacts) { f.Local = now.Add(5 * time.Minute) }, Warn, "5m0s ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := &FacadeFacts{
				URL: "https://locks", Local: now, Server: now, Ready: Answer[Probe]{Value: Probe{Status: 200, NotAfter: now.AddDate(0, 2, 0)}},
				Saturated: Answer[Probe]{Value: Probe{Status: 200}},
			}
			test.breaks(facts)
			findings := JudgeFacade(facts)
			if worst := findings.Worst(); worst != test.status {
				t.Errorf("it is %s, want %s", worst, test.status)
			}
			if all := text(t, findings); !strings.Contains(all, test.want) {
				t.Errorf("%q is not said:\n%s", test.want, all)
			}
		})
	}
}

func TestOfANamespaceThatDoesNotExistNothingElseIsSaid(t *testing.T) {
	facts := well(t)
	facts.Labels.Err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "nosuch")
	var found []string
	for _, finding := range Judge(facts) {
		switch finding.Check {
		case "namespace", "your rights", "a dry run":
			found = append(found, finding.Check+": "+string(finding.Status))
		}
	}
	if want := []string{"namespace: " + string(Fail)}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestAFailureIsWorseThanAWarning(t *testing.T) {
	report := Report{{Status: Warn}, {Status: Fail}, {Status: Skip}}
	for count, want := range []Status{OK, Warn, Fail, Fail} {
		if got := report[:count].Worst(); got != want {
			t.Errorf("of %v the worst is %s, want %s", report[:count], got, want)
		}
	}
}
