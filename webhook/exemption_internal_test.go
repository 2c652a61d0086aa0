package webhook

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	facadeUser      = "system:serviceaccount:forrst-system:lock-operator-facade"
	controllersUser = "system:serviceaccount:forrst-system:lock-operator-controllers"
	webhookUser     = "system:serviceaccount:forrst-system:lock-operator-webhook"
)

// threeUsers is the exemption of an installation with a process for each component.
func threeUsers(t *testing.T, logger logr.Logger, configurations ...*admissionregistrationv1.MutatingWebhookConfiguration) *Exemption {
	t.Helper()
	cluster := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
	for _, configuration := range configurations {
		cluster.WithObjects(configuration)
	}
	exemption, err := NewExemption(ExemptionOptions{
		LockUsers: []string{controllersUser, facadeUser, webhookUser}, JobUser: controllersUser,
		Reader: cluster.Build(), Clock: clock.RealClock{}, Registerer: prometheus.NewRegistry(), Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	return exemption
}

func TestOnlyTheControllersAreExemptFromTheAdmissionOfJobs(t *testing.T) {
	exemption := threeUsers(t, logr.Discard())
	judge := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Denied("judged") })
	for path, want := range map[string][]string{
		LockPath: {controllersUser, facadeUser, webhookUser},
		JobPath:  {controllersUser},
		"/guard": nil,
	} {
		var exempt []string
		for _, user := range []string{controllersUser, facadeUser, webhookUser, "alice"} {
			var request admission.Request
			request.UserInfo.Username = user
			if exemption.of(path, judge).Handle(t.Context(), request).Allowed {
				exempt = append(exempt, user)
			}
		}
		if !slices.Equal(exempt, want) {
			t.Errorf("%s: %q are exempt, want %q", path, exempt, want)
		}
	}
}

func TestEachUserOfTheOperatorMustBeExempt(t *testing.T) {
	list := func(users ...string) string {
		return "!(request.userInfo.username in [ '" + strings.Join(users, "', '") + "'])"
	}
	cases := map[string]struct {
		path, expression string
		want             []string
	}{
		"all, for Locks":                  {LockPath, list(facadeUser, controllersUser, webhookUser), nil},
		"the façade is missing":           {LockPath, list(controllersUser, webhookUser), []string{"does not exempt", `"users"=["` + facadeUser + `"]`}},
		"one more":                        {LockPath, list(facadeUser, controllersUser, webhookUser, "alice"), []string{"exempts another user", `"exemptUsers"=["alice"]`}},
		"the controllers, for Jobs":       {JobPath, "request.userInfo.username != '" + controllersUser + "'", nil},
		"the façade besides, for Jobs":    {JobPath, list(facadeUser, controllersUser), []string{"exempts another user", `"exemptUsers"=["` + facadeUser + `"]`}},
		"all, for what others than us do": {"/mutate-elsewhere", list("alice"), nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{
				ClientConfig:    admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: &test.path}},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: operatorCondition, Expression: test.expression}},
			}}}
			configuration.Name = "lock-operator"
			var logged []string
			exemption := threeUsers(t, funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}), configuration)
			if err := exemption.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if (len(logged) == 0) != (test.want == nil) || len(logged) > 1 {
				t.Fatalf("logged %q, want %q", logged, test.want)
			}
			for _, part := range test.want {
				if !strings.Contains(logged[0], part) {
					t.Errorf("%q lacks %q", logged[0], part)
				}
			}
		})
	}
}
