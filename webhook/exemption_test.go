package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/webhook"
)

func TestExemptionReportsWhatMatchConditionsExempt(t *testing.T) {
	const (
		operator = "system:serviceaccount:platform-locks:team-lock-operator"
		former   = "system:serviceaccount:forrst-system:lock-operator"
		missing  = "does not exempt the operator"
		foreign  = "exempts another user than the operator"
	)
	kubernetes := "!(request.userInfo.username in ['system:kube-controller-manager']) || request.operation == 'CREATE'"
	unequal := func(user string) string { return fmt.Sprintf("request.userInfo.username != '%s'", user) }
	cases := map[string]struct {
		path, name, expression string
		want                   []string
	}{
		"the operator":              {webhook.LockPath, "not-the-operator", unequal(operator), nil},
		"the operator, for Jobs":    {webhook.JobPath, "not-the-operator", unequal(operator), nil},
		"another user":              {webhook.LockPath, "not-the-operator", unequal(former), []string{missing, foreign}},
		"another user, for Jobs":    {webhook.JobPath, "not-the-operator", unequal(former), []string{missing, foreign}},
		"both":                      {webhook.LockPath, "not-the-operator", unequal(operator) + " && " + unequal(former), []string{foreign}},
		"both, in a list":           {webhook.LockPath, "not-the-operator", "!(request.userInfo.username in ['" + operator + `', "` + former + `"])`, []string{foreign}},
		"both, by another name":     {webhook.LockPath, "not-us", unequal(operator) + ` && request.userInfo.username  !=  "` + former + `"`, []string{foreign}},
		"the operator's creates":    {webhook.LockPath, "not-the-operator", unequal(operator) + " || request.operation != 'CREATE'", nil},
		"another user, not from us": {"/mutate-elsewhere", "not-the-operator", unequal(former), nil},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "team-lock-operator"},
				Webhooks: []admissionregistrationv1.MutatingWebhook{{
					Name: "of.forrst.dev",
					ClientConfig: admissionregistrationv1.WebhookClientConfig{
						Service: &admissionregistrationv1.ServiceReference{Path: &test.path},
					},
					MatchConditions: []admissionregistrationv1.MatchCondition{
						{Name: test.name, Expression: test.expression},
						{Name: "not-a-delete-by-kubernetes", Expression: kubernetes},
					},
				}},
			}
			var logged []string
			registry := prometheus.NewRegistry()
			exemption, err := webhook.NewExemption(webhook.ExemptionOptions{
				LockUsers: []string{operator}, JobUser: operator, Clock: clock.RealClock{}, Registerer: registry,
				Reader: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(configuration).Build(),
				Logger: funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := exemption.Start(t.Context()); err != nil {
				t.Fatal(err)
			}

			if len(logged) != len(test.want) {
				t.Fatalf("logged %q, want %q", logged, test.want)
			}
			others := 0
			for i, want := range test.want {
				parts := []string{want, `"configuration"="team-lock-operator"`, `"webhook"="of.forrst.dev"`, fmt.Sprintf(`"expression"=%q`, unequal(operator))}
				if want == foreign {
					others++
					parts = append(parts, fmt.Sprintf(`"condition"=%q`, test.name), fmt.Sprintf(`"found"=%q`, test.expression), fmt.Sprintf(`"exemptUsers"=[%q]`, former))
				}
				for _, part := range parts {
					if !strings.Contains(logged[i], part) {
						t.Errorf("%q lacks %q", logged[i], part)
					}
				}
			}
			exposed := exposition.Of(&metric.WebhookOtherUsers, fmt.Sprintf("lock_operator_webhook_other_users_exempted %d\n", others))
			if err := testutil.GatherAndCompare(registry, strings.NewReader(exposed), metric.WebhookOtherUsers.Name); err != nil {
				t.Error(err)
			}
		})
	}
}
