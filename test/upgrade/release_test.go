package upgrade_test

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/testenv"
)

// release is a version of the operator: its source, its program and what config/default installs.
type release struct {
	name, root, program string
	manifests           [][]byte
	// flags are those that the program knows.
	flags map[string]bool
}

func currentRelease(ctx context.Context) *release {
	GinkgoHelper()
	root, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	program, err := testenv.Build(ctx, "cmd/lock-operator")
	Expect(err).NotTo(HaveOccurred())
	return newRelease(ctx, "this tree", root, program)
}

// earlierRelease unpacks and builds the revision in UPGRADE_FROM, or else in the file "from".
func earlierRelease(ctx context.Context) *release {
	GinkgoHelper()
	revision := os.Getenv("UPGRADE_FROM")
	if revision == "" {
		content, err := os.ReadFile("from")
		Expect(err).NotTo(HaveOccurred())
		revision = strings.TrimSpace(string(content))
	}
	root, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	folder := GinkgoT().TempDir()
	archive := filepath.Join(folder, "archive.tar")
	run(ctx, root, "git", "archive", "--format=tar", "--output="+archive, revision)
	tree := filepath.Join(folder, "tree")
	Expect(os.Mkdir(tree, 0o700)).To(Succeed())
	run(ctx, tree, "tar", "-xf", archive)
	program := filepath.Join(folder, "lock-operator")
	run(ctx, tree, "go", "build", "-trimpath", "-o", program, "./cmd/lock-operator")
	return newRelease(ctx, revision, tree, program)
}

func run(ctx context.Context, folder, name string, arguments ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = folder
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s %s: %s", name, strings.Join(arguments, " "), output)
}

func newRelease(ctx context.Context, name, root, program string) *release {
	GinkgoHelper()
	module, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	folder, err := filepath.Rel(filepath.Join(module, "config"), filepath.Join(root, "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	manifests, err := environment.Kustomize(ctx, folder)
	Expect(err).NotTo(HaveOccurred())
	made := &release{name: name, root: root, program: program, manifests: manifests, flags: map[string]bool{}}
	usage, _ := exec.CommandContext(ctx, program, "--help").CombinedOutput() // It exits with 2, or 0.
	for line := range strings.Lines(string(usage)) {
		if fields := strings.Fields(line); len(fields) > 0 && strings.HasPrefix(fields[0], "-") {
			made.flags[strings.TrimLeft(fields[0], "-")] = true
		}
	}
	Expect(made.flags).To(HaveKey("components"), string(usage))
	return made
}

// known returns those of the flags that the program has.
func (r *release) known(flags ...string) []string {
	var known []string
	for _, flag := range flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if r.flags[name] {
			known = append(known, flag)
		}
	}
	return known
}

// arguments are those of a component's Deployment, with its environment expanded, as a kubelet does.
func (r *release) arguments(component string) []string {
	GinkgoHelper()
	for _, manifest := range r.manifests {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(manifest, &deployment); err != nil || deployment.Kind != "Deployment" || deployment.Name != "lock-operator-"+component {
			continue
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		var replacements []string
		for _, variable := range container.Env {
			value := variable.Value
			if variable.ValueFrom != nil {
				value = deployment.Namespace // The only field that is used.
			}
			replacements = append(replacements, "$("+variable.Name+")", value)
		}
		expand := strings.NewReplacer(replacements...)
		var arguments []string
		for _, argument := range container.Args {
			arguments = append(arguments, expand.Replace(argument))
		}
		return arguments
	}
	Fail("no Deployment of the " + component)
	return nil
}

// apply applies all manifests. Webhooks are called at the address, by the authority.
func (r *release) apply(ctx context.Context, address string, authority []byte) {
	GinkgoHelper()
	var applied []string
	for _, manifest := range r.manifests {
		var head metav1.TypeMeta
		Expect(yaml.Unmarshal(manifest, &head)).To(Succeed())
		text := string(manifest)
		if strings.HasSuffix(head.Kind, "WebhookConfiguration") {
			text = redirected(manifest, address, authority)
		}
		applied = append(applied, text)
	}
	_, err := environment.Admin.Kubectl.Run(ctx, strings.Join(applied, "\n---\n"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// redirected returns a webhook configuration that calls the address: there is no network of services.
func redirected(manifest []byte, address string, authority []byte) string {
	GinkgoHelper()
	var configuration unstructured.Unstructured
	Expect(yaml.Unmarshal(manifest, &configuration.Object)).To(Succeed())
	hooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	Expect(err).NotTo(HaveOccurred())
	for index := range hooks {
		hook, ok := hooks[index].(map[string]any)
		Expect(ok).To(BeTrue())
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		Expect(err).NotTo(HaveOccurred())
		hook["clientConfig"] = map[string]any{"url": "https://" + address + path, "caBundle": base64.StdEncoding.EncodeToString(authority)}
	}
	Expect(unstructured.SetNestedSlice(configuration.Object, hooks, "webhooks")).To(Succeed())
	text, err := yaml.Marshal(configuration.Object)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}
