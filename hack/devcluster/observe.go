package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const prometheusName = "prometheus"

// scraper is an account with the right to read metrics and no other.
const scraper = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dev-metrics}
rules:
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dev-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dev-metrics}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
`

// findPrometheus returns the path of the program: that of the option if it exists, or else the one of the
// machine.
func findPrometheus(path string) (string, error) {
	if isExecutable(path) {
		return path, nil
	}
	if found, err := exec.LookPath(prometheusName); err == nil {
		return found, nil
	}
	return "", fmt.Errorf("no Prometheus at %s and none on this machine; \"make prometheus\" unpacks Debian's there, "+
		"and PROMETHEUS names another one", path)
}

// startPrometheus starts a Prometheus with the alert rules that reads the metrics of the operator, and waits
// until it serves.
func (c *cluster) startPrometheus(ctx context.Context, admin client.Client) error {
	program, err := findPrometheus(c.options.prometheus)
	if err != nil {
		return err
	}
	token := c.pki("prometheus.token")
	if err := createScraper(ctx, admin, token); err != nil {
		return err
	}
	content, err := yaml.Marshal(c.scraping(token))
	if err != nil {
		return err
	}
	file := c.pki("prometheus.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	c.ports.prometheus.release()
	if err := c.supervisor.start(prometheusName, program,
		"--config.file="+file,
		"--storage.tsdb.path="+c.dir.prometheus(),
		"--web.listen-address="+c.ports.prometheus.address(),
		"--log.level=warn",
	); err != nil {
		return err
	}
	return waitForOK(ctx, &http.Client{Timeout: probeTimeout}, prometheusName, c.prometheusURL()+"/-/ready")
}

// prometheusURL returns the address of Prometheus. Empty without it.
func (c *cluster) prometheusURL() string {
	if !c.options.observe {
		return ""
	}
	return "http://" + c.ports.prometheus.address()
}

// createScraper creates the account of Prometheus, and writes a token of it to the file.
func createScraper(ctx context.Context, admin client.Client, file string) error {
	objects, err := decodeManifests(strings.NewReader(scraper))
	if err != nil {
		return err
	}
	if _, err := install(ctx, admin, objects); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: prometheusName}}
	// Unlike the façade, the port of the metrics takes the token that a pod has by default.
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime))}}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("issuing the token of Prometheus: %w", err)
	}
	return os.WriteFile(file, []byte(request.Status.Token), 0o600)
}

// scraping returns the configuration of Prometheus.
func (c *cluster) scraping(token string) map[string]any {
	return map[string]any{
		"global":     map[string]any{"scrape_interval": c.options.scrapeInterval.String(), "evaluation_interval": c.options.scrapeInterval.String()},
		"rule_files": []string{filepath.Join(c.options.config, "observability", "alerts.yaml")},
		"scrape_configs": []map[string]any{{
			"job_name": operatorName,
			"scheme":   "https",
			// The namespace of a metric is that of the locks.
			"honor_labels":  true,
			"authorization": map[string]string{"credentials_file": token},
			// The operator signs the certificate of this port itself.
			"tls_config": map[string]bool{"insecure_skip_verify": true},
			"static_configs": []map[string]any{{
				"targets": []string{c.ports.metrics.address()},
				"labels":  map[string]string{"namespace": "forrst-system", "pod": operatorName},
			}},
		}},
	}
}
