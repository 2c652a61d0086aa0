package write_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/doctor"
	"forrst.dev/lock-operator/test/support/fixture"
)

// examine runs doctor as the user.
func examine(ctx context.Context, user fixture.Identity, namespace string) (status int, findings []doctor.Finding) {
	GinkgoHelper()
	return read(lockAs(ctx, user, home(), namespace, "", "doctor", "-o", "json"))
}

func read(got outcome) (status int, findings []doctor.Finding) {
	GinkgoHelper()
	var report struct {
		Findings []doctor.Finding `json:"findings"`
	}
	Expect(json.Unmarshal([]byte(got.Out), &report)).To(Succeed(), "%s%s", got.Out, got.ErrOut)
	return got.Status, report.Findings
}

func finding(check string, status doctor.Status, message string) OmegaMatcher {
	return And(HaveField("Check", check), HaveField("Status", status), HaveField("Message", ContainSubstring(message)))
}

var _ = Describe("Doctor", Serial, func() {
	// configuration is that of the webhook of locks.
	configuration := func(ctx context.Context) *admissionregistrationv1.MutatingWebhookConfiguration {
		GinkgoHelper()
		var all admissionregistrationv1.MutatingWebhookConfigurationList
		Expect(cluster.Admin.Client.List(ctx, &all)).To(Succeed())
		Expect(all.Items).To(HaveLen(1))
		return &all.Items[0]
	}
	// configured changes the webhooks until the end of the spec.
	configured := func(ctx context.Context, change func([]admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook) {
		GinkgoHelper()
		before := configuration(ctx)
		after := before.DeepCopy()
		after.Webhooks = change(after.Webhooks)
		Expect(cluster.Admin.Client.Update(ctx, after)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			current := configuration(ctx)
			current.Webhooks = before.Webhooks
			Expect(cluster.Admin.Client.Update(ctx, current)).To(Succeed())
			Eventually(func(ctx context.Context) int {
				status, _ := examine(ctx, chief, "default")
				return status
			}).WithContext(ctx).WithTimeout(timeout).Should(BeZero())
		})
	}
	// broken changes the webhook of Locks until the end of the spec.
	broken := func(ctx context.Context, change func(*admissionregistrationv1.MutatingWebhook)) {
		GinkgoHelper()
		configured(ctx, func(webhooks []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			for index := range webhooks {
				if webhooks[index].Name == "lock.forrst.dev" {
					change(&webhooks[index])
				}
			}
			return webhooks
		})
	}
	becomes := func(ctx context.Context, user fixture.Identity, want OmegaMatcher) {
		GinkgoHelper()
		Eventually(func(g Gomega, ctx context.Context) {
			status, findings := examine(ctx, user, "default")
			g.Expect(status).To(Equal(200))
			g.Expect(findings).To(ContainElement(want))
		}).WithContext(ctx).WithTimeout(timeout).Should(Succeed())
	}

	It("finds nothing wrong, and creates nothing", func(ctx context.Context) {
		namespace := cluster.Namespace(ctx, "doctor-")
		Eventually(func(g Gomega, ctx context.Context) {
			status, findings := examine(ctx, cluster.Admin, namespace)
			g.Expect(findings).To(ContainElements(
				finding("type Lock", doctor.OK, "serves"),
				finding("webhook", doctor.OK, "asks"),
				finding("certificate", doctor.Warn, "expires on"), // That of the tests lasts for a week.
				finding("exempted users", doctor.OK, ""),
				finding("policies", doctor.OK, ""),
				finding("a dry run", doctor.OK, "refuses a forged one"),
				finding("clock", doctor.OK, ""),
			))
			g.Expect(findings).NotTo(ContainElement(HaveField("Status", doctor.Fail)))
			g.Expect(status).To(BeZero())
		}).WithContext(ctx).WithTimeout(timeout).Should(Succeed())
		Expect(must(cluster.Admin.Kubectl.Run(ctx, "", "-n", namespace, "get", "locks"))).To(ContainSubstring("No resources"))
	})

	It("says that the type Lock is not installed, and guesses nothing of the rest", func(ctx context.Context) {
		without := fixture.Start(ctx)
		finalizers := func(names string) {
			must(without.Admin.Kubectl.Run(ctx, "", "patch", "crd", "locks.forrst.dev", "--type=merge", "-p", `{"metadata":{"finalizers":`+names+`}}`))
		}
		finalizers(`["example.com/hold"]`)
		must(without.Admin.Kubectl.Run(ctx, "", "delete", "customresourcedefinition", "locks.forrst.dev", "--wait=false"))
		_, findings := examine(ctx, without.Admin, "default")
		Expect(findings).To(HaveExactElements(
			finding("api server", doctor.OK, "answers"), HaveField("Check", "clock"), finding("type Lock", doctor.Fail, "is being deleted")))
		finalizers("null")
		for message, user := range map[string]fixture.Identity{
			"lock-operator is not installed: the cluster does not know Locks":                   without.Admin,
			"lock-operator is not installed, or not wholly: the cluster does not serve Locks: ": without.Identity("somebody"),
		} {
			// The API server goes on to show the type for a moment.
			Eventually(func(g Gomega, ctx context.Context) {
				status, findings := examine(ctx, user, "default")
				g.Expect(findings).To(HaveExactElements(
					finding("api server", doctor.OK, "answers"), HaveField("Check", "clock"), finding("type Lock", doctor.Fail, message)))
				g.Expect(status).To(Equal(200))
			}).WithContext(ctx).WithTimeout(timeout).Should(Succeed())
		}
	})

	It("says what a user with few rights cannot see", func(ctx context.Context) {
		status, findings := examine(ctx, guest, "default")
		Expect(status).To(BeZero())
		Expect(findings).To(ContainElements(
			finding("webhook", doctor.Skip, "may not read"),
			finding("a dry run", doctor.Skip, "may not create"),
			finding("your rights", doctor.Warn, "create, update, delete"),
		))
	})

	It("finds a webhook that is not trusted", func(ctx context.Context) {
		broken(ctx, func(webhook *admissionregistrationv1.MutatingWebhook) {
			webhook.ClientConfig.CABundle = cluster.Admin.Config.CAData // It has signed nothing of the webhook.
		})
		becomes(ctx, chief, finding("a dry run", doctor.Fail, "x509"))
	})

	It("finds a webhook that is away", func(ctx context.Context) {
		broken(ctx, func(webhook *admissionregistrationv1.MutatingWebhook) {
			url := "https://" + fixture.FreeAddress(ctx) + "/"
			webhook.ClientConfig.URL, webhook.ClientConfig.Service = &url, nil
		})
		becomes(ctx, chief, finding("a dry run", doctor.Fail, "connection refused"))
	})

	It("finds that the webhook of guards alone is away", func(ctx context.Context) {
		namespace := cluster.Namespace(ctx, "doctor-")
		must(cluster.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled))
		var all admissionregistrationv1.ValidatingWebhookConfigurationList
		Expect(cluster.Admin.Client.List(ctx, &all)).To(Succeed())
		index := slices.IndexFunc(all.Items, func(of admissionregistrationv1.ValidatingWebhookConfiguration) bool {
			return of.Webhooks[0].Name == "guard.forrst.dev"
		})
		Expect(index).To(BeNumerically(">=", 0))
		before := all.Items[index].DeepCopy()
		url := "https://" + fixture.FreeAddress(ctx) + "/"
		after := before.DeepCopy()
		after.Webhooks[0].ClientConfig.URL, after.Webhooks[0].ClientConfig.Service = &url, nil
		Expect(cluster.Admin.Client.Update(ctx, after)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			after.Webhooks = before.Webhooks
			Expect(cluster.Admin.Client.Update(ctx, after)).To(Succeed())
		})
		Eventually(func(g Gomega, ctx context.Context) {
			_, findings := examine(ctx, cluster.Admin, namespace)
			g.Expect(findings).To(ContainElement(finding("guards", doctor.Fail, "every write of a listed resource fails")))
			g.Expect(findings).To(ContainElement(finding("a dry run", doctor.OK, "")))
		}).WithContext(ctx).WithTimeout(timeout).Should(Succeed())
	})

	It("finds that no webhook is asked", func(ctx context.Context) {
		broken(ctx, func(webhook *admissionregistrationv1.MutatingWebhook) {
			webhook.MatchConditions = append(webhook.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
		})
		becomes(ctx, chief, finding("a dry run", doctor.Fail, "no webhook judges"))
	})

	It("finds that no webhook judges Jobs", func(ctx context.Context) {
		configured(ctx, func(webhooks []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
			return slices.DeleteFunc(webhooks, func(webhook admissionregistrationv1.MutatingWebhook) bool { return webhook.Name == "job.forrst.dev" })
		})
		becomes(ctx, cluster.Admin, finding("webhook", doctor.Fail, "no webhook configuration has job.forrst.dev"))
	})

	It("finds that the fence of a namespace is not in force", func(ctx context.Context) {
		namespace := cluster.Namespace(ctx, "doctor-")
		must(cluster.Admin.Kubectl.Run(ctx, "", "label", "namespace", namespace, v1alpha1.GuardsLabel+"="+v1alpha1.GuardsEnabled))
		var all admissionregistrationv1.ValidatingAdmissionPolicyBindingList
		Expect(cluster.Admin.Client.List(ctx, &all)).To(Succeed())
		index := slices.IndexFunc(all.Items, func(of admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
			return strings.HasSuffix(of.Name, "-fence")
		})
		Expect(index).To(BeNumerically(">=", 0))
		fence := all.Items[index].DeepCopy()
		Expect(cluster.Admin.Client.Delete(ctx, &all.Items[index])).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			fence.ResourceVersion, fence.UID = "", ""
			Expect(cluster.Admin.Client.Create(ctx, fence)).To(Succeed())
		})
		_, findings := examine(ctx, cluster.Admin, namespace)
		Expect(findings).To(ContainElement(finding("guards", doctor.Fail, "lock-operator-fence is not in force")))
	})

	It("says what keeps it from the API server", func(ctx context.Context) {
		folder := home()
		stranger := httptest.NewTLSServer(http.NotFoundHandler())
		DeferCleanup(stranger.Close)
		authority, token := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "kubeconfig")
		Expect(os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate().Raw}), 0o600)).To(Succeed())
		unknown := clientcmdapi.NewConfig()
		unknown.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster.Admin.Config.Host, CertificateAuthorityData: cluster.Admin.Config.CAData}
		unknown.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "of-nobody"}
		unknown.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		unknown.CurrentContext = "x"
		Expect(clientcmd.WriteToFile(*unknown, token)).To(Succeed())
		ofGuest := guest.Kubectl.Kubeconfig()
		for message, flags := range map[string][]string{
			"it does not know you: ":                  {"--kubeconfig", token},
			"it does not let you act as another user": {"--kubeconfig", ofGuest, "--as", "bob"},
			"its certificate is not trusted: ":        {"--kubeconfig", ofGuest, "--certificate-authority", authority},
		} {
			status, findings := read(finish(command(ctx, folder, append([]string{"doctor", "-o", "json"}, flags...)...), ""))
			Expect(status).To(Equal(200))
			Expect(findings).To(HaveExactElements(And(
				finding("api server", doctor.Fail, message), HaveField("Do", ContainSubstring("kubectl get namespaces --kubeconfig "+flags[1])))))
		}
	})

	It("finds a user who is exempted and does not exist", func(ctx context.Context) {
		broken(ctx, func(webhook *admissionregistrationv1.MutatingWebhook) {
			for index := range webhook.MatchConditions {
				if condition := &webhook.MatchConditions[index]; condition.Name == "not-the-operator" {
					condition.Expression += " && request.userInfo.username != 'system:serviceaccount:gone:operator'"
				}
			}
		})
		becomes(ctx, cluster.Admin, finding("exempted users", doctor.Fail, "system:serviceaccount:gone:operator"))
	})

	It("looks at façades", func(ctx context.Context) {
		status, findings := read(finish(command(ctx, home(), "doctor", "-o", "json", "--server", open), ""))
		Expect(status).To(BeZero())
		Expect(findings).To(ContainElements(finding("façade", doctor.OK, "is ready"), finding("your rights", doctor.OK, "knows you")))
		status, findings = read(finish(command(ctx, home(), "doctor", "-o", "json", "--server", closed), ""))
		Expect(status).To(Equal(200))
		Expect(findings).To(ContainElement(finding("your rights", doctor.Fail, "does not know you")))
		status, findings = read(finish(command(ctx, home(), "doctor", "-o", "json", "--server", "http://"+fixture.FreeAddress(ctx)), ""))
		Expect(status).To(Equal(200))
		Expect(findings).To(ConsistOf(finding("façade", doctor.Fail, "does not answer")))
	})
})
