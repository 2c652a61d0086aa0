package chart_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// cluster is a control plane without nodes and without controllers.
type cluster struct {
	environment *envtest.Environment
	kubeconfig  string
}

var started *cluster

func TestMain(m *testing.M) {
	code := m.Run()
	if started != nil {
		if err := started.environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// start starts the one cluster of the tests, with the definitions of the optional objects.
func start(t *testing.T) *cluster {
	t.Helper()
	found, err := startOnce()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var startOnce = sync.OnceValues(func() (*cluster, error) {
	definitions, err := exec.Command("go", "run", "./definitions").Output()
	if err != nil {
		return nil, fmt.Errorf("find the definitions of optional objects: %w", err)
	}
	environment := &envtest.Environment{
		CRDInstallOptions:        envtest.CRDInstallOptions{Paths: strings.Fields(string(definitions)), MaxTime: 15 * time.Minute},
		ControlPlaneStartTimeout: 15 * time.Minute,
	}
	if _, err := environment.Start(); err != nil {
		return nil, err
	}
	started = &cluster{environment: environment}
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, err
	}
	text, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "kubeconfig-")
	if err != nil {
		return nil, err
	}
	started.kubeconfig = file.Name()
	if _, err := file.Write(text); err != nil {
		return nil, err
	}
	return started, file.Close()
})

// kubectl runs kubectl and returns its output, warnings included.
func (c *cluster) kubectl(ctx context.Context, stdin string, arguments ...string) (string, error) {
	binary := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	command := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", c.kubeconfig}, arguments...)...)
	command.Stdin = strings.NewReader(stdin)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, output.String())
	}
	return output.String(), nil
}

// must runs kubectl, which must succeed.
func (c *cluster) must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := c.kubectl(t.Context(), "", arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(output)
}

// helm runs Helm on the cluster, which must succeed.
func (c *cluster) helm(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := helm(t.Context(), append(arguments, "--kubeconfig="+c.kubeconfig)...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// restricted makes a namespace as the documentation says.
func (c *cluster) restricted(t *testing.T, name string) {
	t.Helper()
	c.must(t, "create", "namespace", name)
	c.must(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
}

// TestEveryVariantIsAccepted has the API server judge every object of each variant, without storing it.
func TestEveryVariantIsAccepted(t *testing.T) {
	cluster := start(t)
	cluster.restricted(t, namespace)
	for name, flags := range map[string]string{
		"default":                      "",
		"high availability":            "highAvailability=true",
		"cert-manager":                 "certificates.provider=cert-manager",
		"cert-manager with own issuer": "certificates.provider=cert-manager,certificates.certManager.issuer.name=internal,certificates.certManager.issuer.kind=ClusterIssuer",
		"existing certificates":        "certificates.provider=existing,certificates.existing.authority=-----BEGIN CERTIFICATE-----",
		"everything":                   everything,
		"everything with cert-manager": everything + ",certificates.provider=cert-manager",
		"all lists":                    "networkPolicy.facadeFrom[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.apiServerTo[0].ipBlock.cidr=10.0.0.1/32,webhook.clientAuthority.configMap=clients,imagePullSecrets[0].name=registry",
		"values that other charts have": "global.imagePullSecrets[0].name=shared,nameOverride=locks,revisionHistoryLimit=0,securityContext.runAsUser=1000660000,containerSecurityContext.runAsGroup=7,podDnsPolicy=None,podDnsConfig.nameservers={10.0.0.10}," +
			"serviceIPFamilyPolicy=SingleStack,serviceIPFamilies={IPv4},extraObjects[0].apiVersion=v1,extraObjects[0].kind=ConfigMap,extraObjects[0].metadata.name=more,extraObjects[0].metadata.namespace=" + namespace + "," +
			"facade.service.type=LoadBalancer,facade.service.loadBalancerClass=example.com/internal,facade.service.loadBalancerSourceRanges={10.0.0.0/8},facade.strategy.rollingUpdate.maxSurge=0,facade.strategy.rollingUpdate.maxUnavailable=100%,controllers.startupProbe.failureThreshold=900,webhook.readinessProbe.timeoutSeconds=7," +
			"controllers.serviceAccount.name=ours,webhook.serviceAccount.create=false,webhook.serviceAccount.name=theirs,webhook.securePort=10260,webhook.timeoutSeconds=30,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=30s,metrics.serviceMonitor.scrapeTimeout=10s",
		"a Prometheus that reads no files": "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.authorization.credentials.name=reader,metrics.serviceMonitor.authorization.credentials.key=token,metrics.alerts.enabled=true,metrics.alerts.disabled={LockOperatorLongWait}",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := helm(t.Context(), "template", release, chart, "--namespace="+namespace, "--set="+flags)
			if err != nil {
				t.Fatal(err)
			}
			output, err := cluster.kubectl(t.Context(), text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			// Such as of Pod Security, and of unknown fields.
			if strings.Contains(output, "Warning") {
				t.Errorf("the API server warns: %s", output)
			}
		})
	}
}
