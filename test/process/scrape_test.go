package process_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/test/support/fixture"
)

var (
	// scraped is the address of the metrics of the process that startMeasured has started.
	scraped string
	// scraper is a token that may get the metrics.
	scraper string
	// reported are all metrics that were ever scraped.
	reported = map[string]*dto.MetricFamily{}
)

// startMeasured starts a process with metrics, and returns when it leads.
func startMeasured(ctx context.Context) {
	GinkgoHelper()
	scraped = fixture.FreeAddress(ctx)
	start(ctx, "--clock-skew-allowance=0s", "--metrics-bind-address="+scraped)
	Eventually(leads).WithContext(ctx).Should(BeEquivalentTo(1))
}

func leads(ctx context.Context) (float64, error) {
	families, err := scrape(ctx)
	if err != nil || families["lock_operator_leader"] == nil {
		return 0, err
	}
	return families["lock_operator_leader"].GetMetric()[0].GetGauge().GetValue(), nil
}

func scraperToken(ctx context.Context) string {
	GinkgoHelper()
	admin := environment.Admin.Client
	meta := metav1.ObjectMeta{Namespace: "default", Name: "scraper"}
	Expect(admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}},
	})).To(Succeed())
	return tokenOf(ctx, "default", "scraper")
}

func tokenOf(ctx context.Context, namespace, account string, audiences ...string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx, of, request)).To(Succeed())
	return request.Status.Token
}

// scrape returns all metrics of the process, by name.
func scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+scraped+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+scraper)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	maps.Copy(reported, families)
	return families, err
}

func mustScrape(ctx context.Context) map[string]*dto.MetricFamily {
	GinkgoHelper()
	families, err := scrape(ctx)
	Expect(err).NotTo(HaveOccurred())
	return families
}

// call sends a request to the façade and returns the status, 0 if there was no answer.
func call(ctx context.Context, method, path, token, body string) int {
	request, err := http.NewRequestWithContext(ctx, method, facadeURL+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // What has arrived is enough.
	return response.StatusCode
}
