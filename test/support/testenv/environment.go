package testenv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/hack/admissionclient"
)

// The operator is installed under the names of config/, unless the environment variables
// OPERATOR_NAMESPACE and OPERATOR_NAME_PREFIX set others.
var (
	// OperatorNamespace is the namespace of the operator.
	OperatorNamespace = cmp.Or(os.Getenv("OPERATOR_NAMESPACE"), "forrst-system")
	operatorPrefix    = os.Getenv("OPERATOR_NAME_PREFIX")
	// OperatorUser is the user name of the operator, and OperatorGroups are its groups.
	OperatorUser   = "system:serviceaccount:" + OperatorNamespace + ":" + operatorPrefix + "lock-operator"
	OperatorGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + OperatorNamespace}
)

// Installed returns the name under which an object of config/ is installed.
func Installed(name string) string { return operatorPrefix + name }

// TestersGroup has every permission on Locks that RBAC can grant.
const TestersGroup = "testers"

// Environment is a running control plane. Use [Start] to make one.
type Environment struct {
	// Config is the client configuration of an administrator.
	Config *rest.Config
	// Scheme knows the built-in types and the Lock.
	Scheme *runtime.Scheme

	envtest *envtest.Environment
	dir     string
	root    string
	// clients says how the API server makes itself known to webhooks.
	clients admissionclient.Files
}

// Start starts etcd and an API server from KUBEBUILDER_ASSETS, or else from bin/k8s, and
// installs config/crd, config/rbac, config/admission-policy and config/priority. The caller stops it.
func Start(ctx context.Context) (*Environment, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	// Tests start both anew, at the same ports.
	etcd, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	peers, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	apiServer, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(apiServer)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lock-operator-test-")
	if err != nil {
		return nil, err
	}
	environment := &Environment{Scheme: scheme, dir: dir, root: root, envtest: &envtest.Environment{
		Scheme:                scheme,
		BinaryAssetsDirectory: Assets(root),
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		// A busy machine may need more than the defaults of 20 and 10 seconds.
		ControlPlaneStartTimeout: 15 * time.Minute,
		ControlPlaneStopTimeout:  2 * time.Minute,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: time.Minute},
	}}
	// This folder keeps the certificates across restarts of the API server.
	certificates := filepath.Join(dir, "pki")
	if err := os.Mkdir(certificates, 0o700); err != nil {
		return nil, err
	}
	environment.envtest.ControlPlane.APIServer = &envtest.APIServer{CertDir: certificates}
	if environment.clients, err = admissionclient.Write(certificates, admissionclient.AnyWebhook); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	environment.envtest.ControlPlane.APIServer.Configure().Set("admission-control-config-file", environment.clients.Admission)
	// And this one the data across restarts of etcd.
	data := filepath.Join(dir, "etcd")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	environment.envtest.ControlPlane.Etcd = &envtest.Etcd{DataDir: data, URL: &url.URL{Scheme: "http", Host: etcd}}
	environment.envtest.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://"+peers)
	environment.envtest.ControlPlane.APIServer.SecureServing.ListenAddr = envtest.ListenAddr{Address: host, Port: port}
	environment.Config, err = environment.envtest.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane (make control-plane builds it): %w", err), environment.Stop())
	}
	if err := environment.prepare(ctx); err != nil {
		return nil, errors.Join(err, environment.Stop())
	}
	return environment, nil
}

// Stop ends every process of the environment.
func (e *Environment) Stop() error {
	return errors.Join(e.envtest.Stop(), os.RemoveAll(e.dir))
}

func (e *Environment) prepare(ctx context.Context) error {
	manifests, err := e.installed(ctx)
	if err != nil {
		return err
	}
	// The rest are the CRD, which envtest has installed, and the webhook.
	installed := slices.DeleteFunc(manifests, func(manifest []byte) bool {
		var kind metav1.TypeMeta
		err := yaml.Unmarshal(manifest, &kind)
		return err == nil && (kind.Kind == "CustomResourceDefinition" || kind.Kind == "Service" || strings.HasSuffix(kind.Kind, "WebhookConfiguration"))
	})
	testers := fmt.Sprintf(`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: testers}
rules:
- apiGroups: [forrst.dev]
  resources: [locks]
  verbs: [get, list, watch, create, update, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: testers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: testers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: %s}]
`, TestersGroup)
	admin, err := e.Kubectl(e.envtest.KubeConfig)
	if err != nil {
		return err
	}
	_, err = admin.Run(ctx, string(bytes.Join(installed, []byte("\n---\n")))+testers, "apply", "-f", "-")
	return err
}

// User returns the configuration of a client that authenticates as the user, and whose
// requests are not throttled.
func (e *Environment) User(name string, groups ...string) (*rest.Config, *Kubectl, error) {
	user, err := e.envtest.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, nil, err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, nil, err
	}
	kubectl, err := e.Kubectl(kubeconfig)
	config := rest.CopyConfig(user.Config())
	config.QPS = -1
	return config, kubectl, err
}

// Kustomize renders a folder of config/, document by document.
func (e *Environment) Kustomize(ctx context.Context, folder string) ([][]byte, error) {
	return e.kustomize(ctx, filepath.Join(e.root, "config", folder))
}

func (e *Environment) kustomize(ctx context.Context, path string) ([][]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(Assets(e.root), "kubectl"), "kustomize", path)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize %s: %w: %s", path, err, stderr.String())
	}
	return bytes.Split(output, []byte("\n---\n")), nil
}

// installed renders config/dev, which has no Deployment, under the names of the operator.
func (e *Environment) installed(ctx context.Context) ([][]byte, error) {
	overlay, err := os.MkdirTemp(e.dir, "overlay-")
	if err != nil {
		return nil, err
	}
	if err := WriteOverlay(overlay, e.root); err != nil {
		return nil, err
	}
	return e.kustomize(ctx, overlay)
}

// WriteOverlay makes the folder, which must exist, a kustomization that renders config/dev
// under the names of the operator. root is the folder of the module.
func WriteOverlay(folder, root string) error {
	config, err := filepath.Rel(folder, filepath.Join(root, "config"))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("namespace: %s\nnamePrefix: %q\nresources: [%s/dev]\ntransformers: [%[3]s/dev/identity]\n",
		OperatorNamespace, operatorPrefix, config)
	return os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)
}

// InstallWebhook installs the operator's webhook configurations. They call a server on
// this machine, which must listen on the returned host and port with the certificate in
// certDir.
func (e *Environment) InstallWebhook(ctx context.Context) (host string, port int, certDir string, err error) {
	manifests, err := e.installed(ctx)
	if err != nil {
		return "", 0, "", err
	}
	return e.InstallWebhookOf(manifests)
}

// InstallPatientWebhook is [Environment.InstallWebhook], but the API server waits for each answer as long as it can, so that
// none is late on a slow machine.
func (e *Environment) InstallPatientWebhook(ctx context.Context) (host string, port int, certDir string, err error) {
	manifests, err := e.installed(ctx)
	if err != nil {
		return "", 0, "", err
	}
	return e.installWebhookOf(manifests, new(int32(30)))
}

// InstallWebhookOf is [Environment.InstallWebhook] for the webhook configurations among
// the manifests.
func (e *Environment) InstallWebhookOf(manifests [][]byte) (host string, port int, certDir string, err error) {
	return e.installWebhookOf(manifests, nil)
}

// installWebhookOf replaces the time-outs of the manifests by so many seconds, if there are any.
func (e *Environment) installWebhookOf(manifests [][]byte, seconds *int32) (host string, port int, certDir string, err error) {
	options := envtest.WebhookInstallOptions{MaxTime: time.Minute}
	for _, document := range manifests {
		var mutating admissionregistrationv1.MutatingWebhookConfiguration
		var validating admissionregistrationv1.ValidatingWebhookConfiguration
		if err := errors.Join(yaml.Unmarshal(document, &mutating), yaml.Unmarshal(document, &validating)); err != nil {
			return "", 0, "", err
		}
		for i := range mutating.Webhooks {
			mutating.Webhooks[i].TimeoutSeconds = cmp.Or(seconds, mutating.Webhooks[i].TimeoutSeconds)
		}
		for i := range validating.Webhooks {
			validating.Webhooks[i].TimeoutSeconds = cmp.Or(seconds, validating.Webhooks[i].TimeoutSeconds)
		}
		switch mutating.Kind {
		case "MutatingWebhookConfiguration":
			options.MutatingWebhooks = append(options.MutatingWebhooks, &mutating)
		case "ValidatingWebhookConfiguration":
			options.ValidatingWebhooks = append(options.ValidatingWebhooks, &validating)
		}
	}
	if err := options.Install(e.Config); err != nil {
		return "", 0, "", err
	}
	e.envtest.WebhookInstallOptions = options
	return options.LocalServingHost, options.LocalServingPort, options.LocalServingCertDir, nil
}

// Assets returns the folder of the control plane's binaries.
func Assets(root string) string {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return assets
	}
	return filepath.Join(root, "bin", "k8s")
}

// ModuleRoot returns the folder of the operator's module, upwards from the working directory: the nearest
// with the file PROJECT. Some suites are modules of their own below it.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no PROJECT above the working directory")
		}
		dir = parent
	}
}
