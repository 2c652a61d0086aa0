package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/test/support/golden"
)

func text(t *testing.T, report Report) string {
	t.Helper()
	content, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(content) + "\n"
}

func says(t *testing.T, report Report, status Status, want string) {
	t.Helper()
	if worst := report.Worst(); worst != status {
		t.Errorf("it is %s, want %s", worst, status)
	}
	if all := text(t, report); !strings.Contains(strings.ReplaceAll(all, `\"`, `"`), want) {
		t.Errorf("%q is not said:\n%s", want, all)
	}
	for _, finding := range report {
		if (finding.Status == Warn || finding.Status == Fail) && finding.Do == "" {
			t.Errorf("it is not said what to do: %v", finding)
		}
	}
}

func TestFindsNothingWrongWithAWholeInstallation(t *testing.T) {
	report := well(t).examine(t)
	if worst := report.Worst(); worst != OK {
		t.Errorf("it is %s", worst)
	}
	golden.Check(t, "well.json", text(t, report))
}

// refusedPost is how the API server says that nothing listens.
const refusedPost = `Post "https://lock-operator-webhook.forrst-system.svc:443/mutate?timeout=5s": dial tcp 10.96.0.7:443: connect: connection refused`

func uncalled(webhook, why string) error {
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %s", webhook, why))
}

func TestFindsWhatIsWrong(t *testing.T) {
	const jobWebhook, auditWebhook = "job.forrst.dev", "audit.lock.forrst.dev"
	resource := schema.GroupResource{Group: "forrst.dev", Resource: "locks"}
	unserved := &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "forrst.dev", Kind: "Lock"}}
	without := func(name string) func(*installation) {
		return func(i *installation) { i.webhook(name).Name = "of.example.com" }
	}
	asked := func(name string, operations ...admissionregistrationv1.OperationType) func(*installation) {
		return func(i *installation) { i.webhook(name).Rules[0].Operations = operations }
	}
	for name, test := range map[string]struct {
		breaks func(*installation)
		status Status
		want   string
	}{
		"no definition": {func(i *installation) { i.definition = nil }, Fail, "does not know Locks"},
		"an old definition": {func(i *installation) {
			i.definition = definition(slices.DeleteFunc(specFields(), func(name string) bool { return name == "renewalPolicy" })...)
		}, Fail, "lacks spec.renewalPolicy"},
		"a definition that is deleted": {func(i *installation) {
			i.definition.DeletionTimestamp, i.definition.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
		}, Fail, "kubectl get locks.forrst.dev -A --context far"},
		"a definition that has no effect": {func(i *installation) { i.unserved = unserved }, Fail, "does not serve Locks: no matches"},
		"a definition that is not read":   {func(i *installation) { i.unread["CustomResourceDefinition"] = errors.New("timeout") }, Fail, "its definition could not be read: timeout"},
		"a right that is missing":         {func(i *installation) { i.verbs = slices.Delete(i.verbs, 3, 4) }, Warn, "ann may not create locks in namespace shop"},
		"no right to force":               {func(i *installation) { i.verbs = i.verbs[:6] }, OK, "and not end those of other holders"},
		"no webhook of Locks":             {without(lockWebhook), Fail, "no webhook configuration has lock.forrst.dev"},
		"no webhook of Jobs":              {without(jobWebhook), Fail, "no webhook configuration has job.forrst.dev"},
		"no webhook of the audit":         {without(auditWebhook), Fail, "no webhook configuration has audit.lock.forrst.dev"},
		"two webhook configurations":      {func(i *installation) { i.webhooks = append(i.webhooks, *i.webhook(lockWebhook)) }, Fail, "2 webhook configurations have lock.forrst.dev"},
		"two, of an operator elsewhere": {func(i *installation) {
			of := i.webhook(lockWebhook)
			of.MatchConditions[0].Expression = strings.ReplaceAll(of.MatchConditions[0].Expression, "forrst-system", "platform")
			i.webhooks = append(i.webhooks, *of)
			for _, deployment := range i.deployments {
				deployment.Namespace, deployment.Status.ReadyReplicas = "platform", 0
			}
		}, Fail, "0 of 2 replicas"},
		"two webhooks of guards": {func(i *installation) { i.webhooks = append(i.webhooks, *i.webhook(guardWebhook)) }, Warn, "2 webhook configurations have guard.forrst.dev"},
		"an authority that follows on one which ends": {func(i *installation) {
			bundle := slices.Concat(authority(t, now.Add(time.Hour)), authority(t, now.AddDate(9, 0, 0)))
			for index := range i.webhooks {
				i.webhooks[index].ClientConfig.CABundle = bundle
			}
		}, OK, ""},
		"policies that you may not read": {func(i *installation) {
			i.unread["ValidatingAdmissionPolicyList"] = apierrors.NewForbidden(resource, "", errors.New("x"))
		}, OK, "you may not read the admission policies"},
		"a network in between": {func(i *installation) {
			i.admitted = uncalled(lockWebhook, "dial tcp 10.96.0.7:443: connect: no route to host")
		}, Fail, "see that the network"},
		"Jobs whose changes are not judged": {asked(jobWebhook, "CREATE"), Fail, "job.forrst.dev is not asked about the operation UPDATE of jobs"},
		"a webhook not asked of deletes":    {asked(lockWebhook, "CREATE", "UPDATE"), Fail, "the operation DELETE"},
		"a webhook asked of all":            {asked(lockWebhook, "*"), OK, ""},
		"an audit that keeps namespaces":    {func(i *installation) { i.webhook(auditWebhook).FailurePolicy = nil }, Fail, "is Fail, and not Ignore"},
		"webhooks that are not read":        {func(i *installation) { i.unread["MutatingWebhookConfigurationList"] = errors.New("timeout") }, Fail, "could not be read: timeout"},
		"a selector of namespaces": {func(i *installation) {
			i.webhook(lockWebhook).NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, Warn, "leaves namespaces out"},
		"no authority of Jobs":      {func(i *installation) { i.webhook(jobWebhook).ClientConfig.CABundle = nil }, Fail, "no caBundle"},
		"an authority that is none": {func(i *installation) { i.webhook(lockWebhook).ClientConfig.CABundle = []byte("x") }, Fail, "no caBundle"},
		"an authority that has expired": {func(i *installation) {
			i.webhook(lockWebhook).ClientConfig.CABundle = authority(t, now.Add(-time.Hour))
		}, Fail, "has expired"},
		"an authority about to expire":    {func(i *installation) { i.webhook(lockWebhook).ClientConfig.CABundle = authority(t, now.Add(time.Hour)) }, Warn, "expires on"},
		"no exempted user":                {func(i *installation) { i.webhook(lockWebhook).MatchConditions = nil }, Warn, "exempts no user"},
		"a caller who is exempted":        {func(i *installation) { i.user = exempt }, Warn, "nothing judges or audits"},
		"an exempted user who is missing": {func(i *installation) { i.account = nil }, Fail, exempt + " is exempted and does not exist"},
		"no policy for Jobs":              {func(i *installation) { delete(i.bindings, "-jobs") }, Fail, "lock-operator-jobs is not in force"},
		"a policy that only audits":       {func(i *installation) { i.audited = "-jobs" }, Fail, "lock-operator-jobs is not in force"},
		"a policy of others":              {func(i *installation) { i.ofOthers = "-jobs" }, Fail, "lock-operator-jobs is not in force"},
		"a binding of a missing policy":   {func(i *installation) { i.bindings["-shop"] = "lock-operator-keys" }, Fail, "of-shop of lock-operator-keys"},
		"Jobs that are to be restricted": {func(i *installation) { i.namespace.Labels["forrst.dev/job-locks"] = "restricted" }, Fail,
			"kubectl label namespace shop forrst.dev/job-locks- --context far"},
		"a webhook that is not called":     {func(i *installation) { i.admitted = errors.New("holder and times are not stamped: x") }, Fail, "no webhook judges"},
		"a webhook that is away":           {func(i *installation) { i.admitted = uncalled(lockWebhook, "connection refused") }, Fail, "does not answer: failed to call"},
		"a webhook without pods":           {func(i *installation) { i.admitted = uncalled(lockWebhook, "no endpoints available") }, Fail, "bring it back"},
		"a webhook that is not there":      {func(i *installation) { i.admitted = uncalled(lockWebhook, refusedPost) }, Fail, "bring it back: kubectl get pods -A -l app.kubernetes.io/name=lock-operator --context far"},
		"a webhook that is not trusted":    {func(i *installation) { i.admitted = uncalled(lockWebhook, "x509: unknown authority") }, Fail, "does not trust"},
		"a webhook that is not reached":    {func(i *installation) { i.admitted = uncalled(lockWebhook, "context deadline exceeded") }, Fail, "network"},
		"a policy that refuses":            {func(i *installation) { i.admitted = apierrors.NewForbidden(resource, "x", errors.New("policy")) }, Warn, "is refused"},
		"a namespace that ends":            {func(i *installation) { i.admitted = apierrors.NewNotFound(resource, "x") }, Fail, "see that the namespace exists"},
		"a forged holder that is admitted": {func(i *installation) { i.forged = nil }, Fail, "forged holder would be admitted"},
		"a replica that is not ready":      {func(i *installation) { i.deployments[0].Status.ReadyReplicas = 1 }, Warn, "1 of 2 replicas"},
		"a Deployment without replicas":    {func(i *installation) { i.deployments[0].Status.ReadyReplicas = 0 }, Fail, "0 of 2 replicas"},
		"two images": {func(i *installation) {
			i.deployments[0].Spec.Template.Spec.Containers[0].Image = "lock-operator:v0.2.0"
		}, Warn, "different images: lock-operator:v0.1.0, lock-operator:v0.2.0"},
		"an operator elsewhere":         {func(i *installation) { i.deployments = nil }, OK, "it runs elsewhere"},
		"guards that are not installed": {without(guardWebhook), Fail, "has opted in, and no webhook configuration has guard.forrst.dev"},
		"no guards":                     {func(i *installation) { without(guardWebhook)(i); i.namespace.Labels = nil }, OK, "they are not installed, so a freeze is refused"},
		"guards without the fence":      {func(i *installation) { delete(i.bindings, "-fence") }, Fail, "lock-operator-fence is not in force"},
		"guards that are not asked for": {func(i *installation) { i.namespace.Labels = nil }, OK, "has not opted in: kubectl label namespace"},
		"guards and a webhook that is away": {func(i *installation) { i.admitted = uncalled(lockWebhook, refusedPost) }, Fail,
			"where every write of a listed resource fails"},
		"guards whose webhook alone is away":      {func(i *installation) { i.guarded = uncalled(guardWebhook, refusedPost) }, Fail, "where every write of a listed resource fails"},
		"guards and another webhook that is away": {func(i *installation) { i.guarded = uncalled("of.example.com", refusedPost) }, OK, "and in force in namespace shop"},
	} {
		t.Run(name, func(t *testing.T) {
			installed := well(t)
			test.breaks(installed)
			says(t, installed.examine(t), test.status, test.want)
		})
	}
}

// A caller who may read little must not be told that all is well, nor that something is wrong.
func TestSaysWhatItSkips(t *testing.T) {
	installed := well(t)
	installed.verbs = installed.verbs[:3]
	for _, list := range []string{
		"CustomResourceDefinition", "MutatingWebhookConfigurationList", "ValidatingAdmissionPolicyList", "DeploymentList", "Namespace",
	} {
		installed.unread[list] = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", nil)
	}
	golden.Check(t, "few_rights.json", text(t, installed.examine(t)))
}

// What is not installed explains all others, and nothing else is to be guessed.
func TestStopsWhereNothingIsInstalled(t *testing.T) {
	for name, unread := range map[string]error{
		"to an administrator": nil,
		"to others":           apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "locks.forrst.dev", nil),
	} {
		t.Run(name, func(t *testing.T) {
			installed := well(t)
			installed.definition, installed.unread["CustomResourceDefinition"] = nil, unread
			installed.unserved = &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "forrst.dev", Kind: "Lock"}}
			report := installed.examine(t)
			says(t, report, Fail, "lock-operator is not installed")
			if len(report) != 2 {
				t.Errorf("got %s", text(t, report))
			}
		})
	}
}

func TestOfANamespaceThatDoesNotExistNothingElseIsSaid(t *testing.T) {
	installed := well(t)
	installed.namespace = nil
	var found []string
	for _, finding := range installed.examine(t) {
		switch finding.Check {
		case "namespace", "your rights", "a dry run", "guards":
			found = append(found, finding.Check+": "+string(finding.Status))
		}
	}
	if want := []string{"namespace: " + string(Fail)}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestJudgesTheAPIServer(t *testing.T) {
	impersonation := apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "bob", errors.New(`User "ann" cannot impersonate resource "users"`)).Status()
	impersonation.Kind, impersonation.APIVersion = "Status", "v1"
	for name, test := range map[string]struct {
		status  int
		answer  any
		want    Status
		message string
	}{
		"that refuses the request": {http.StatusForbidden, impersonation, Fail, `it does not let you act as another user: users "bob" is forbidden`},
		"that is old":              {http.StatusOK, map[string]string{"gitVersion": "v1.33.9"}, Fail, "Kubernetes is v1.33.9, and lock-operator needs 1.34"},
		"that is new":              {http.StatusOK, map[string]string{"gitVersion": "v1.36.3"}, OK, "Kubernetes v1.36.3 answers; this is kubectl-lock v0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path != "/version" {
					http.NotFound(w, r)
					return
				}
				w.WriteHeader(test.status)
				_ = json.NewEncoder(w).Encode(test.answer)
			}))
			t.Cleanup(server.Close)
			config, path := clientcmdapi.NewConfig(), filepath.Join(t.TempDir(), "config")
			config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
			config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			report, err := Examine(t.Context(), sessionOf(t, session.Options{}, "--kubeconfig", path, "--as", "bob"), "v0.1.0")
			if err != nil {
				t.Fatal(err)
			}
			if first := report[0]; first.Status != test.want || !strings.Contains(first.Message, test.message) {
				t.Errorf("it says %+v", report)
			}
			if test.status != http.StatusOK && !strings.HasSuffix(report[0].Do, "kubectl get namespaces --kubeconfig "+path+" --as bob") {
				t.Errorf("it proposes %q", report[0].Do)
			}
		})
	}
}

func TestJudgesTheClock(t *testing.T) {
	for want, local := range map[string]time.Time{"1m0s ahead of": now.Add(time.Minute), "1m0s behind": now.Add(-time.Minute)} {
		var report Report
		report.judgeClock(local, now)
		says(t, report, Warn, want)
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
