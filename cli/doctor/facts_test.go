package doctor

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/cli/session"
)

func TestAPolicyIsInForceIfABindingDenies(t *testing.T) {
	builder := fake.NewClientBuilder().WithScheme(session.Scheme)
	for name, labels := range map[string]map[string]string{
		"lock-operator-jobs": {nameLabel: operatorName}, "lock-operator-fence": {nameLabel: operatorName}, "lock-operator-of-others": nil,
	} {
		builder.WithObjects(&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for name, action := range map[string]admissionregistrationv1.ValidationAction{
		"lock-operator-jobs": admissionregistrationv1.Deny, "lock-operator-fence": admissionregistrationv1.Audit,
		"lock-operator-of-others": admissionregistrationv1.Deny, "lock-operator-keys": admissionregistrationv1.Deny, "others": admissionregistrationv1.Deny,
	} {
		builder.WithObjects(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		})
	}
	answer := policiesOf(t.Context(), builder.Build())
	if got := answer.Value; answer.Err != nil || !slices.Equal(got.InForce, []string{"lock-operator-jobs"}) ||
		!slices.Equal(got.Dangling, []string{"of-lock-operator-keys of lock-operator-keys"}) {
		t.Errorf("got %+v", answer)
	}
}

func TestARefusalOfTheFirstRequestKeepsItsReason(t *testing.T) {
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "bob", errors.New(`User "ann" cannot impersonate resource "users"`))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		status := refusal.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	config, path := clientcmdapi.NewConfig(), filepath.Join(t.TempDir(), "config")
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	asking := session.New(session.Options{Streams: genericiooptions.NewTestIOStreamsDiscard(), Clock: clocktesting.NewFakeClock(now)})
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	asking.AddFlags(flags)
	if err := flags.Parse([]string{"--kubeconfig", path, "--as", "bob"}); err != nil {
		t.Fatal(err)
	}
	facts, err := Ask(t.Context(), asking, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if report := Judge(facts); len(report) != 1 || !strings.HasPrefix(report[0].Message, "it does not let you act as another user: users \"bob\" is forbidden") ||
		!strings.HasSuffix(report[0].Do, "kubectl get namespaces --kubeconfig "+path+" --as bob") {
		t.Errorf("it says %+v", report)
	}
}
