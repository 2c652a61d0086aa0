package install_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	renamedNamespace = "platform-locks"
	renamedAccount   = "team-lock-operator"
	renamedUser      = "system:serviceaccount:" + renamedNamespace + ":" + renamedAccount
	// operatorTimeout bounds how long the operator may take to start, lead and stop.
	operatorTimeout = 60 * time.Second
)

var _ = Describe("An installation into another namespace under other names", Ordered, func() {
	var (
		manifests [][]byte
		operator  *gexec.Session
		facade    string
		start     func(context.Context)
	)

	BeforeAll(func(ctx context.Context) {
		var err error
		manifests, err = environment.Kustomize(ctx, "samples/install")
		Expect(err).NotTo(HaveOccurred())
		account, webhookFlags := installRenamed(ctx, manifests)

		start = func(ctx context.Context) {
			GinkgoHelper()
			address := fixture.FreeAddress(ctx)
			facade = "http://" + address
			operator = fixture.StartOperator(ctx, account, append(webhookFlags,
				"--facade-bind-address="+address,
				"--facade-auth=none",
				"--facade-shutdown-delay=0s",
			)...)
		}
		start(ctx)
	})

	get := func(ctx context.Context, arguments ...string) func() (string, error) {
		return func() (string, error) { return admin.Run(ctx, "", append([]string{"get"}, arguments...)...) }
	}
	acquire := func(ctx context.Context, key string) {
		GinkgoHelper()
		body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"forrst.ping"},"extensions":[
			{"urn":"urn:forrst:ext:atomicLock","options":{"key":%q,"scope":"global","ttl":{"value":60,"unit":"second"},"auto_release":false}}]}`, key)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, facade+"/forrst", strings.NewReader(body))
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(get(ctx, "locks", "--field-selector=spec.key="+key, "-o=jsonpath={.items[*].spec.holder}")()).NotTo(BeEmpty())
	}
	logged := func() string { return string(operator.Err.Contents()) }

	It("has no manifest that names the former namespace or service account", func() {
		text := string(bytes.Join(manifests, nil))
		Expect(text).NotTo(ContainSubstring("forrst-system"))
		Expect(text).NotTo(ContainSubstring(":lock-operator"))
		Expect(strings.Count(text, "request.userInfo.username != '"+renamedUser+"'")).To(Equal(2), "one for Locks and one for Jobs")
		Expect(strings.Count(text, "cert-manager.io/inject-ca-from: "+renamedNamespace+"/team-lock-operator-webhook")).To(Equal(2))
		Expect(text).To(And(ContainSubstring("- team-lock-operator-webhook.%s.svc\n", renamedNamespace),
			ContainSubstring("issuerRef:\n    kind: Issuer\n    name: team-lock-operator\n")))
	})

	It("elects its leader in its own namespace", func(ctx context.Context) {
		Eventually(get(ctx, "lease", "lock-operator.forrst.dev", "-n", renamedNamespace, "-o=jsonpath={.spec.holderIdentity}")).
			WithTimeout(operatorTimeout).ShouldNot(BeEmpty())
	})

	It("stamps the locks that users create", func(ctx context.Context) {
		_, err := admin.Run(ctx, "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata: {name: direct}\nspec: {key: direct}\n", "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(get(ctx, "lock", "direct", "-o=jsonpath={.spec.holder}")()).To(Equal("admin"))
		_, err = admin.Run(ctx, "", "delete", "lock", "direct")
		Expect(err).NotTo(HaveOccurred())
	})

	It("runs a Job under a lock that the operator holds by its own name", func(ctx context.Context) {
		_, err := admin.Run(ctx, `
apiVersion: batch/v1
kind: Job
metadata: {name: locked, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: renamed-job}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(get(ctx, "job", "locked", "-o=jsonpath={.spec.suspend}")).WithTimeout(operatorTimeout).Should(Equal("false"))
		Expect(get(ctx, "locks", "--field-selector=spec.key=renamed-job", "-o=jsonpath={.items[*].spec.holder}")()).To(Equal(renamedUser))
	})

	It("keeps the operator's own writes away from the webhook", func(ctx context.Context) {
		acquire(ctx, "exempt")
		Expect(logged()).NotTo(Or(ContainSubstring("does not exempt the operator"),
			ContainSubstring("exempts another user"), ContainSubstring("request of the operator itself")))
	})

	It("says which match condition to set if the webhook configuration exempts another user", func(ctx context.Context) {
		expression := "request.userInfo.username != '" + renamedUser + "'"
		_, err := admin.Run(ctx, "", "patch", "mutatingwebhookconfiguration", "team-lock-operator", "--type=json",
			`-p=[{"op":"replace","path":"/webhooks/0/matchConditions/0/expression","value":"request.userInfo.username != 'another-user'"}]`)
		Expect(err).NotTo(HaveOccurred())
		operator.Terminate().Wait(operatorTimeout)
		start(ctx)
		Eventually(logged).WithTimeout(operatorTimeout).Should(And(ContainSubstring("The webhook configuration does not exempt the operator"),
			ContainSubstring(`"configuration":"team-lock-operator"`), ContainSubstring(`"webhook":"lock.forrst.dev"`), ContainSubstring(expression)))
		Eventually(logged).WithTimeout(operatorTimeout).Should(And(ContainSubstring("The webhook configuration exempts another user than the operator"),
			ContainSubstring(`"condition":"not-the-operator"`), ContainSubstring(`"exemptUsers":["another-user"]`)))
		Expect(logged()).NotTo(ContainSubstring("job.forrst.dev"), "the other webhook exempts the operator")
		attempt := 0
		Eventually(func() string { // The API server takes a moment to load the configuration.
			attempt++
			acquire(ctx, fmt.Sprintf("judged-%d", attempt))
			return logged()
		}).WithTimeout(operatorTimeout).Should(ContainSubstring("Admitted a request of the operator itself"))
	})
})

// installRenamed applies manifests of an installation in [renamedNamespace], but for those of cert-manager,
// until the end of the container. Its webhooks are called at the address of the flags that it returns, with
// the account of the operator.
func installRenamed(ctx context.Context, manifests [][]byte) (account *testenv.Kubectl, webhookFlags []string) {
	GinkgoHelper()
	for _, manifest := range manifests {
		if !bytes.Contains(manifest, []byte("apiVersion: cert-manager.io/")) && !bytes.Contains(manifest, []byte("WebhookConfiguration\n")) {
			_, err := admin.Run(ctx, string(manifest), "apply", "--server-side", "--force-conflicts", "-f", "-")
			Expect(err).NotTo(HaveOccurred())
		}
	}
	host, port, certDir, err := environment.InstallWebhookOf(manifests)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := admin.Run(ctx, "", "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
		Expect(err).NotTo(HaveOccurred())
	})
	_, account, err = environment.User(renamedUser, "system:serviceaccounts", "system:serviceaccounts:"+renamedNamespace, "system:authenticated")
	Expect(err).NotTo(HaveOccurred())
	return account, environment.WebhookFlags(host, port, certDir)
}
