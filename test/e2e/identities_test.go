package e2e_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

// describeIdentities has the specs of a development cluster that authenticates callers. The last one kills it.
func describeIdentities(started func() *cluster) {
	It("takes the tokens that the cluster prints commands for, and no token for the API server", func(ctx context.Context) {
		own := started()
		printed, err := os.ReadFile(filepath.Join(own.dir, "worker.token"))
		Expect(err).NotTo(HaveOccurred())
		acquire := func(token string) int {
			GinkgoHelper()
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, own.facade+"/v1/namespaces/payments/locks/billing:close", strings.NewReader(`{"ttl_seconds":60}`))
			Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
			response, err := http.DefaultClient.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			return response.StatusCode
		}
		Expect(acquire(string(printed))).To(Equal(http.StatusCreated))
		token := func(arguments ...string) string {
			GinkgoHelper()
			made, err := own.kubectl.Run(ctx, "", append([]string{"create", "token", "worker", "--namespace=payments"}, arguments...)...)
			Expect(err).NotTo(HaveOccurred())
			return made
		}
		Expect(string(own.session.Out.Contents())).To(ContainSubstring("create token worker --namespace shop --audience lock-operator.forrst.dev"))
		Expect(acquire(token("--audience=lock-operator.forrst.dev"))).To(Equal(http.StatusLocked))
		Expect(acquire(token())).To(Equal(http.StatusUnauthorized))
	})

	It("leaves no process of the cluster behind when that is killed", func(context.Context) {
		own := started()
		own.session.Kill()
		Eventually(own.session).WithTimeout(stopTimeout).Should(gexec.Exit())
		Eventually(func() []int { return processes(own.dir) }).WithTimeout(stopTimeout).Should(BeEmpty())
	})
}
