package install_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	renamedNamespace = "platform-locks"
	renamedPrefix    = "team-"
	// operatorTimeout bounds how long the operator may take to start, lead and stop.
	operatorTimeout = 5 * time.Minute
	// ownAudience is the audience that the façade takes tokens for.
	ownAudience = "lock-operator.forrst.dev"
)

// watchSilence is the age of the newest change that an engine's watch has shown.
var _ = Describe("An installation into another namespace under other names, by one process for each component", Ordered, func() {
	var (
		installed *installation
		token     string
	)

	BeforeAll(func(ctx context.Context) {
		manifests, err := environment.Kustomize(ctx, "samples/install")
		Expect(err).NotTo(HaveOccurred())
		installed = install(ctx, renamedNamespace, renamedPrefix, manifests)
		installed.runAll(ctx)
		_, err = admin.Run(ctx, "", "create", "namespace", callers)
		Expect(err).NotTo(HaveOccurred())
		environment.AllowWorkers(ctx, callers)
		token = tokenOf(ctx, callers, fixture.Worker, ownAudience)
	})

	get := func(ctx context.Context, arguments ...string) func() (string, error) {
		return func() (string, error) { return admin.Run(ctx, "", append([]string{"get"}, arguments...)...) }
	}
	acquire := func(ctx context.Context, key string) {
		GinkgoHelper()
		Expect(installed.post(ctx, installed.trusting(), key, token)).To(Equal(http.StatusCreated))
		Expect(get(ctx, "locks", "-n", callers, "--field-selector=spec.key="+key, "-o=jsonpath={.items[*].spec.holder}")()).To(
			Equal("system:serviceaccount:" + callers + ":" + fixture.Worker))
	}

	It("has no manifest that names the former namespace or service accounts", func() {
		text := string(bytes.Join(installed.manifests, nil))
		Expect(text).NotTo(ContainSubstring("forrst-system"))
		Expect(text).NotTo(ContainSubstring(":lock-operator-"))
		conditions := func(component string) int { return strings.Count(text, "'"+installed.user(component)+"'") }
		Expect(conditions(facade)).To(Equal(1), "for Locks")
		Expect(conditions(controllers)).To(Equal(4), "for Locks, Jobs, their status, and the policy that binds it")
		Expect(conditions(webhook)).To(Equal(1), "for Locks")
		for _, component := range components {
			Expect(text).To(ContainSubstring("forrst.dev/user: " + installed.user(component) + "\n"))
		}
		for _, secret := range []string{"authority", facade, webhook, controllers} {
			Expect(text).To(ContainSubstring("          value: team-lock-operator-" + secret + "\n"))
		}
		Expect(text).NotTo(ContainSubstring("value: lock-operator-"), "in a flag of another name")
		Expect(text).NotTo(MatchRegexp("resourceNames:(\n  - team-[a-z-]+)*\n  - lock-operator"))
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

	It("runs a Job under a lock that the controllers hold by their own name", func(ctx context.Context) {
		_, err := admin.Run(ctx, `
apiVersion: batch/v1
kind: Job
metadata: {name: locked, labels: {forrst.dev/lock: "true"}, annotations: {forrst.dev/lock-key: renamed-job}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(get(ctx, "job", "locked", "-o=jsonpath={.spec.suspend}")).WithTimeout(operatorTimeout).Should(Equal("false"))
		Expect(get(ctx, "locks", "--field-selector=spec.key=renamed-job", "-o=jsonpath={.items[*].spec.holder}")()).To(Equal(installed.user(controllers)))
	})

	It("refuses to the controllers every pod and Job that is not under a lock", func(ctx context.Context) {
		_, err := admin.Run(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: bystander}
spec: {containers: [{name: work, image: work}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bystander}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: work, image: work}]}}}
`, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		taken := installed.identity(controllers).Kubectl
		Eventually(func() error { // The API server takes a moment to load the policy.
			_, err := taken.Run(ctx, "", "delete", "pod", "bystander", "--dry-run=server")
			return err
		}).WithTimeout(operatorTimeout).Should(MatchError(ContainSubstring("may delete only pods of Jobs that it has started under a lock")))
		_, err = taken.Run(ctx, "", "delete", "pod", "bystander")
		Expect(err).To(MatchError(ContainSubstring("(Forbidden)")))
		_, err = taken.Run(ctx, "", "patch", "job", "bystander", `-p={"spec":{"suspend":false}}`)
		Expect(err).To(MatchError(ContainSubstring("may change only Jobs under a lock")))
	})

	It("serves TLS and nothing else, with the certificate of the installation", func(ctx context.Context) {
		acquire(ctx, "by-tls")
		_, err := installed.post(ctx, &http.Client{}, "untrusted", token)
		var untrusted x509.UnknownAuthorityError
		Expect(errors.As(err, &untrusted)).To(BeTrue(), "%v", err)
		plain := *installed
		plain.facadeURL = strings.Replace(installed.facadeURL, "https", "http", 1)
		// The connection may end before the answer is read.
		if status, err := plain.post(ctx, &http.Client{}, "plain", token); err == nil {
			Expect(status).To(Equal(http.StatusBadRequest))
		}
		Expect(get(ctx, "locks", "-n", callers, "--field-selector=spec.key=plain", "-o=jsonpath={.items}")()).To(Equal("[]"))
	})

	It("serves a new certificate when the installation brings one", func(ctx context.Context) {
		former := installed.trusting()
		installed.issue()
		Eventually(func(ctx context.Context) error {
			_, err := installed.post(ctx, installed.trusting(), "rotated", token)
			return err
		}).WithContext(ctx).WithTimeout(operatorTimeout).Should(Succeed())
		_, err := installed.post(ctx, former, "rotated", token)
		Expect(err).To(HaveOccurred(), "the former certificate is still served")
	})

	It("takes tokens for the façade, and none for the API server", func(ctx context.Context) {
		Expect(installed.post(ctx, installed.trusting(), "own-audience", token)).To(Equal(http.StatusCreated))
		Expect(installed.post(ctx, installed.trusting(), "api-audience", tokenOf(ctx, callers, fixture.Worker))).To(Equal(http.StatusUnauthorized))
		Expect(installed.post(ctx, installed.trusting(), "no-token", "")).To(Equal(http.StatusUnauthorized))
	})

	It("reads no pods and Jobs for the callers of the façade until it is given the right", func(ctx context.Context) {
		uid, err := admin.Run(ctx, "", "create", "job", "holder", "--image=work", "-n", callers, "-o=jsonpath={.metadata.uid}")
		Expect(err).NotTo(HaveOccurred())
		body := fmt.Sprintf(`{"ttl_seconds":60,"holder_ref":{"api_version":"batch/v1","kind":"Job","name":"holder","uid":%q}}`, uid)
		status, answer, err := installed.postBody(ctx, installed.trusting(), "for-a-job", token, body)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(BeNumerically(">=", 400))
		Expect(answer).To(ContainSubstring("lock-operator may not get jobs.batch"))
		_, err = admin.Run(ctx, "", "create", "clusterrole", "facade-holders", "--verb=get", "--resource=jobs.batch")
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.Run(ctx, "", "create", "clusterrolebinding", "facade-holders", "--clusterrole=facade-holders", "--user="+installed.user(facade))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (int, error) { // The API server takes a moment to know the role.
			status, _, err := installed.postBody(ctx, installed.trusting(), "for-a-job", token, body)
			return status, err
		}).WithTimeout(operatorTimeout).Should(Equal(http.StatusCreated))
	})

	It("tells the metrics of each component to who may read them", func(ctx context.Context) {
		_, err := admin.Run(ctx, "", "create", "serviceaccount", "scraper", "-n", callers)
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.Run(ctx, "", "create", "clusterrolebinding", "scraper", "--clusterrole=team-lock-operator-metrics", "--serviceaccount="+callers+":scraper")
		Expect(err).NotTo(HaveOccurred())
		scraper := tokenOf(ctx, callers, "scraper")
		for _, component := range components {
			Eventually(installed.scrape).WithContext(ctx).WithArguments(component, scraper).WithTimeout(operatorTimeout).
				Should(MatchRegexp(`(?m)^lock_operator_watch_closed_seconds\{engine="[a-z-]+"\} 0$`), component)
		}
	})

	It("keeps the operator's own writes away from the webhook", func(ctx context.Context) {
		acquire(ctx, "exempt")
		Expect(installed.logged(webhook)).NotTo(Or(ContainSubstring("does not exempt the operator"),
			ContainSubstring("exempts another user"), ContainSubstring("request of the operator itself")))
	})

	It("says which match condition to set if the webhook configuration exempts another user", func(ctx context.Context) {
		expression := fmt.Sprintf("!(request.userInfo.username in ['%s', '%s', '%s'])",
			installed.user(controllers), installed.user(facade), installed.user(webhook))
		_, err := admin.Run(ctx, "", "patch", "mutatingwebhookconfiguration", "team-lock-operator", "--type=json",
			`-p=[{"op":"replace","path":"/webhooks/0/matchConditions/0/expression","value":"request.userInfo.username != 'another-user'"}]`)
		Expect(err).NotTo(HaveOccurred())
		installed.processes[webhook].Terminate().Wait(operatorTimeout)
		installed.run(ctx, webhook)
		logged := func() string { return installed.logged(webhook) }
		Eventually(logged).WithTimeout(operatorTimeout).Should(And(ContainSubstring("The webhook configuration does not exempt the operator"),
			ContainSubstring(`"configuration":"team-lock-operator"`), ContainSubstring(`"webhook":"lock.forrst.dev"`), ContainSubstring(expression)))
		Eventually(logged).WithTimeout(operatorTimeout).Should(And(ContainSubstring("The webhook configuration exempts another user than the operator"),
			ContainSubstring(`"condition":"not-the-operator"`), ContainSubstring(`"exemptUsers":["another-user"]`)))
		Expect(logged()).NotTo(ContainSubstring("job.forrst.dev"), "the other webhook exempts the controllers")
		attempt := 0
		Eventually(func() string { // The API server takes a moment to load the configuration.
			attempt++
			acquire(ctx, fmt.Sprintf("judged-%d", attempt))
			return logged()
		}).WithTimeout(operatorTimeout).Should(ContainSubstring("Admitted a request of the operator itself"))
	})
})
