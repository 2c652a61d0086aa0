package install_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	facade      = "facade"
	controllers = "controllers"
	webhook     = "webhook"
)

// callers is the namespace of those who call the façade.
const callers = "callers"

// components are the Deployments of config/default.
var components = []string{facade, controllers, webhook}

// installation is what config/ makes of an overlay, without a network and nodes: the specs run the
// processes of its Deployments.
type installation struct {
	namespace, prefix string
	manifests         [][]byte
	// webhookFlags say where the API server calls the webhook.
	webhookFlags []string
	// facadeURL is where the façade serves, with the certificate in facadeCerts.
	facadeURL, facadeCerts string
	// processes and metrics are those of the components, and the addresses of their metrics.
	processes map[string]*gexec.Session
	metrics   map[string]string
}

// install applies the manifests of an overlay, but for those of cert-manager, until the end of the
// container.
func install(ctx context.Context, namespace, prefix string, manifests [][]byte) *installation {
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
	installed := &installation{
		namespace: namespace, prefix: prefix, manifests: manifests,
		webhookFlags: environment.WebhookFlags(host, port, certDir),
		facadeCerts:  GinkgoT().TempDir(), processes: map[string]*gexec.Session{}, metrics: map[string]string{},
	}
	installed.issue()
	return installed
}

// user is the user name of a component.
func (i *installation) user(component string) string {
	return "system:serviceaccount:" + i.namespace + ":" + i.prefix + "lock-operator-" + component
}

// identity is that of a component.
func (i *installation) identity(component string) fixture.Identity {
	GinkgoHelper()
	return environment.Identity(i.user(component), "system:serviceaccounts", "system:serviceaccounts:"+i.namespace, "system:authenticated")
}

// run starts the process of a component, by the arguments of its Deployment. Only addresses and files
// are those of this machine, and flags come last.
func (i *installation) run(ctx context.Context, component string, flags ...string) {
	GinkgoHelper()
	i.metrics[component] = fixture.FreeAddress(ctx)
	arguments := append(argumentsOf(i.deployment(component)), "--metrics-bind-address="+i.metrics[component], "--metrics-cert-dir=")
	switch component {
	case facade:
		address := fixture.FreeAddress(ctx)
		i.facadeURL = "https://" + address
		arguments = append(arguments, "--facade-bind-address="+address, "--facade-shutdown-delay=0s", "--peers-bind-address=0",
			"--facade-tls-cert-file="+filepath.Join(i.facadeCerts, "tls.crt"), "--facade-tls-key-file="+filepath.Join(i.facadeCerts, "tls.key"))
	case webhook:
		arguments = append(arguments, i.webhookFlags...)
	}
	i.processes[component] = fixture.StartOperator(ctx, i.identity(component).Kubectl, append(arguments, flags...)...)
}

// deployment is that of a component.
func (i *installation) deployment(component string) *appsv1.Deployment {
	GinkgoHelper()
	var deployment appsv1.Deployment
	for _, manifest := range i.manifests {
		var head metav1.PartialObjectMetadata
		Expect(yaml.Unmarshal(manifest, &head)).To(Succeed())
		if head.Kind == "Deployment" && head.Name == i.prefix+"lock-operator-"+component {
			Expect(yaml.UnmarshalStrict(manifest, &deployment)).To(Succeed())
		}
	}
	Expect(deployment.Spec.Template.Spec.ServiceAccountName).To(Equal(i.prefix + "lock-operator-" + component))
	return &deployment
}

// runAll starts every component.
func (i *installation) runAll(ctx context.Context) {
	GinkgoHelper()
	for _, component := range components {
		i.run(ctx, component)
	}
}

// logged is what the process of a component has logged.
func (i *installation) logged(component string) string {
	return string(i.processes[component].Err.Contents())
}

// argumentsOf returns the arguments of the Deployment's container with its environment expanded, as a
// kubelet does.
func argumentsOf(deployment *appsv1.Deployment) []string {
	container := deployment.Spec.Template.Spec.Containers[0]
	var replacements []string
	for _, variable := range container.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace" {
			value = deployment.Namespace
		}
		replacements = append(replacements, "$("+variable.Name+")", value)
	}
	expand := strings.NewReplacer(replacements...)
	arguments := make([]string, 0, len(container.Args))
	for _, argument := range container.Args {
		arguments = append(arguments, expand.Replace(argument))
	}
	return arguments
}

// issue gives the façade a certificate of a new authority, as cert-manager does when one is due.
func (i *installation) issue() {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(i.facadeCerts, "tls.crt"), certificate, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(i.facadeCerts, "tls.key"), key, 0o600)).To(Succeed())
}

// trusting is a client of the façade that trusts the authority of its present certificate, and no other.
func (i *installation) trusting() *http.Client {
	GinkgoHelper()
	authority, err := os.ReadFile(filepath.Join(i.facadeCerts, "tls.crt"))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(authority)).To(BeTrue())
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
}

// post sends a request to acquire the lock of the key through the REST door, and returns the status.
func (i *installation) post(ctx context.Context, caller *http.Client, key, token string) (int, error) {
	status, _, err := i.postBody(ctx, caller, key, token, `{"ttl_seconds":60}`)
	return status, err
}

// postBody is [installation.post] with a body of its own, and returns that of the answer, too.
func (i *installation) postBody(ctx context.Context, caller *http.Client, key, token, body string) (int, string, error) {
	address := i.facadeURL + "/v1/namespaces/" + callers + "/locks/" + key
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := caller.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// scrape returns the metrics of a component, or those that came before an error.
func (i *installation) scrape(ctx context.Context, component, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+i.metrics[component]+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", response.StatusCode)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// tokenOf returns a token of a service account for the audiences; without any, for that of the API server.
func tokenOf(ctx context.Context, namespace, name string, audiences ...string) string {
	GinkgoHelper()
	token, err := issueToken(ctx, namespace, name, audiences...)
	Expect(err).NotTo(HaveOccurred())
	return token
}

// issueToken is [tokenOf] for those who try again.
func issueToken(ctx context.Context, namespace, name string, audiences ...string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	err := environment.Admin.Client.SubResource("token").Create(ctx, account, request)
	return request.Status.Token, err
}

// overlayOf renders config/default under other names, with more lines of the kustomization.
func overlayOf(ctx context.Context, namespace, prefix, lines string) [][]byte {
	GinkgoHelper()
	root, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	overlay := GinkgoT().TempDir()
	config, err := filepath.Rel(overlay, filepath.Join(root, "config"))
	Expect(err).NotTo(HaveOccurred())
	kustomization := fmt.Sprintf("namespace: %s\nnamePrefix: %s\nresources: [%s/default]\ntransformers: [%[3]s/identity]\n", namespace, prefix, config) +
		strings.ReplaceAll(lines, "CONFIG", config)
	Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600)).To(Succeed())
	folder, err := filepath.Rel(filepath.Join(root, "config"), overlay)
	Expect(err).NotTo(HaveOccurred())
	manifests, err := environment.Kustomize(ctx, folder)
	Expect(err).NotTo(HaveOccurred())
	return manifests
}
