package gitops_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/testenv"
)

// fluxNamespace is the namespace of the Kustomizations and of their sources.
const fluxNamespace = "flux-system"

// kustomizeController is Flux's kustomize-controller in a process of its own, with the sources that it fetches in the
// place of source-controller.
type kustomizeController struct {
	session *gexec.Session
	server  *httptest.Server
	folder  string

	mu        sync.Mutex
	artifacts map[string][]byte
}

// started is the one of this suite, or nil. Specs use [fluxController].
var started *kustomizeController

// fluxController returns the controller, which starts with the first spec that needs it and ends with the suite.
func fluxController(ctx context.Context) *kustomizeController {
	GinkgoHelper()
	if started == nil {
		started = startKustomizeController(ctx)
	}
	return started
}

var _ = AfterSuite(func() {
	if started != nil {
		started.stop()
	}
})

// startKustomizeController runs bin/kustomize-controller under the identity [flux]. Unlike kubectl[flux] it has the role
// cluster-admin, by a group, as Flux installs it.
func startKustomizeController(ctx context.Context) *kustomizeController {
	GinkgoHelper()
	root := must(testenv.ModuleRoot())
	must(envtest.InstallCRDs(environment.Admin.Config, envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(kustomizeControllerModule(ctx, root), "config", "crd", "bases"), filepath.Join("testdata", "sources.yaml")},
		ErrorIfPathMissing: true,
	}))
	const group = "kustomize-controllers"
	_, identity, err := environment.User(flux, "system:serviceaccounts", "system:authenticated", group)
	Expect(err).NotTo(HaveOccurred())
	must(environment.Admin.Kubectl.Run(ctx, "", "create", "clusterrolebinding", group, "--clusterrole=cluster-admin", "--group="+group))
	must(environment.Admin.Kubectl.Run(ctx, "", "create", "namespace", fluxNamespace))

	c := &kustomizeController{artifacts: map[string][]byte{}, folder: must(os.MkdirTemp("", "kustomize-controller-"))}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	command := exec.Command(filepath.Join(root, "bin", "kustomize-controller"),
		"--metrics-addr=0", "--health-addr=0", "--enable-leader-election=false", "--watch-all-namespaces",
		"--requeue-dependency=1s", "--min-retry-delay=500ms", "--max-retry-delay=2s")
	command.Env = append(os.Environ(), "KUBECONFIG="+identity.Kubeconfig(), "RUNTIME_NAMESPACE="+fluxNamespace, "TMPDIR="+c.folder)
	c.session, err = gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred(), "make bin/kustomize-controller builds it")
	return c
}

// kustomizeControllerModule returns the folder of the controller's module, at the version of bin/kustomize-controller.
func kustomizeControllerModule(ctx context.Context, root string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/fluxcd/kustomize-controller")
	command.Dir = filepath.Join(root, "test", "gitops", "health")
	var module struct {
		Dir string `json:"Dir"`
	}
	Expect(json.Unmarshal(must(command.Output()), &module)).To(Succeed())
	return module.Dir
}

func (c *kustomizeController) stop() {
	GinkgoHelper()
	Eventually(c.session.Terminate()).WithTimeout(timeout).Should(gexec.Exit(0))
	c.server.Close()
	Expect(os.RemoveAll(c.folder)).To(Succeed())
}

func (c *kustomizeController) serve(answer http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	artifact, isKnown := c.artifacts[request.URL.Path]
	if !isKnown {
		http.NotFound(answer, request)
		return
	}
	_, _ = answer.Write(artifact)
}

// source returns a GitRepository of this name, whose artifact has the files of the folder, and the artifact's revision.
func (c *kustomizeController) source(name, folder string) (repository *unstructured.Unstructured, revision string) {
	GinkgoHelper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	Expect(archive.AddFS(os.DirFS(folder))).To(Succeed())
	Expect(archive.Close()).To(Succeed())
	Expect(compressed.Close()).To(Succeed())

	c.mu.Lock()
	defer c.mu.Unlock()
	revision = fmt.Sprintf("main@sha1:%040x", len(c.artifacts)+1)
	path := fmt.Sprintf("/%s/%d.tar.gz", name, len(c.artifacts)+1)
	c.artifacts[path] = packed.Bytes()
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1",
		"kind":       "GitRepository",
		"metadata":   map[string]any{"namespace": fluxNamespace, "name": name},
		"spec":       map[string]any{"interval": "1h", "url": "https://example.com/" + name},
		"status": map[string]any{
			"observedGeneration": 1,
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact for revision '" + revision + "'",
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": 1,
			}},
			"artifact": map[string]any{
				"path": strings.TrimPrefix(path, "/"), "url": c.server.URL + path, "revision": revision, "size": packed.Len(),
				"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(packed.Bytes())), "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
			},
		},
	}}, revision
}

// writeObjects writes objects as they are, in one command.
func writeObjects(ctx context.Context, objects ...*unstructured.Unstructured) {
	GinkgoHelper()
	var manifests []string
	for _, object := range objects {
		manifests = append(manifests, string(must(yaml.Marshal(object.Object))))
	}
	must(environment.Admin.Kubectl.Run(ctx, strings.Join(manifests, "---\n"), "apply", "--server-side", "--force-conflicts", "-f", "-"))
}

// kustomization is a Kustomization in the cluster, by its name.
type kustomization string

// kustomizationStatus is what is read of the status of a Kustomization.
type kustomizationStatus struct {
	LastAppliedRevision    string             `json:"lastAppliedRevision"`
	LastAttemptedRevision  string             `json:"lastAttemptedRevision"`
	LastHandledReconcileAt string             `json:"lastHandledReconcileAt"`
	Conditions             []metav1.Condition `json:"conditions"`
	// Generation is that of the object.
	Generation int64 `json:"-"`
}

// condition returns a condition, or one without a status.
func (s *kustomizationStatus) condition(kind string) metav1.Condition {
	if found := apimeta.FindStatusCondition(s.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// object returns an empty Kustomization of this name.
func (k kustomization) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	object.SetKind("Kustomization")
	object.SetNamespace(fluxNamespace)
	object.SetName(string(k))
	return object
}

func (k kustomization) status(ctx context.Context) *kustomizationStatus {
	GinkgoHelper()
	object := k.object()
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	found := struct {
		Status kustomizationStatus `json:"status"`
	}{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &found)).To(Succeed())
	found.Status.Generation = object.GetGeneration()
	return &found.Status
}

func (k kustomization) ready(ctx context.Context) metav1.Condition {
	GinkgoHelper()
	status := k.status(ctx)
	return status.condition("Ready")
}

// outcome waits until the controller has ended with what the predicate is about, and returns why the Kustomization is
// not ready.
func (k kustomization) outcome(ctx context.Context, isSeen func(*kustomizationStatus) bool) error {
	GinkgoHelper()
	var ready metav1.Condition
	Eventually(ctx, func(g Gomega) {
		status := k.status(ctx)
		ready = status.condition("Ready")
		g.Expect(isSeen(status)).To(BeTrue(), "%+v", status)
		g.Expect(ready.ObservedGeneration).To(Equal(status.Generation), "%+v", status)
		g.Expect(ready.Status).NotTo(Or(BeEmpty(), Equal(metav1.ConditionUnknown)), "%+v", status)
	}).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(Succeed())
	if ready.Status != metav1.ConditionTrue {
		return errors.New(ready.Message)
	}
	return nil
}

// reconcile asks for another reconciliation, as "flux reconcile" does, and returns how it ended.
func (k kustomization) reconcile(ctx context.Context) error {
	GinkgoHelper()
	now := time.Now().Format(time.RFC3339Nano)
	must(environment.Admin.Kubectl.Run(ctx, "", "annotate", "kustomization", string(k), "--namespace="+fluxNamespace, "--overwrite", "reconcile.fluxcd.io/requestedAt="+now))
	return k.outcome(ctx, func(status *kustomizationStatus) bool { return status.LastHandledReconcileAt == now })
}

// remove deletes the Kustomization, and waits until the controller has pruned what it applied.
func (k kustomization) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(admin.Delete(ctx, k.object()))).To(Succeed())
	Eventually(ctx, func() bool {
		object := k.object()
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(object), object))
	}).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(BeTrue())
}

// Changes of the spec of a Kustomization.
func withForce(spec map[string]any)    { spec["force"] = true }
func withWaiting(spec map[string]any)  { spec["wait"] = true }
func withRetries(spec map[string]any)  { spec["retryInterval"] = "1s" }
func withDeployer(spec map[string]any) { spec["serviceAccountName"] = "shop-deployer" }

// submit writes a Kustomization of each folder with manifests of a Lock, and returns functions that wait for the outcomes.
// A folder with the same Lock as an earlier one in the spec is a new revision of its Kustomization.
func (c *kustomizeController) submit(ctx context.Context, folders []string, changes ...func(spec map[string]any)) map[string]func() error {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	outcomes := map[string]func() error{}
	for _, folder := range folders {
		k := kustomizationOf(folder)
		// With a source of its own, a revision and a change of the Kustomization are one write.
		name := fmt.Sprintf("%s-%d", k, time.Now().UnixNano())
		repository, revision := c.source(name, folder)
		spec := map[string]any{"interval": "1h", "prune": true, "path": "./", "sourceRef": map[string]any{"kind": "GitRepository", "name": name}}
		for _, change := range changes {
			change(spec)
		}
		object := k.object()
		object.Object["spec"] = spec
		objects = append(objects, repository, object)
		outcomes[folder] = func() error {
			return k.outcome(ctx, func(status *kustomizationStatus) bool { return status.LastAttemptedRevision == revision })
		}
		DeferCleanup(k.remove)
	}
	writeObjects(ctx, objects...)
	return outcomes
}

// kustomizationOf is the name of the Kustomization of a folder, after the Lock in it.
func kustomizationOf(folder string) kustomization {
	GinkgoHelper()
	for _, path := range must(filepath.Glob(filepath.Join(folder, "*.yaml"))) {
		for document := range strings.SplitSeq(string(must(os.ReadFile(path))), "\n---\n") {
			var object metav1.PartialObjectMetadata
			Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
			if object.Kind == "Lock" {
				// Its length is limited: it is a label's value, too.
				return kustomization(fmt.Sprintf("lock-%.8x", sha256.Sum256([]byte(object.Name))))
			}
		}
	}
	Fail("no Lock in " + folder)
	return ""
}

// applyWithFlux has kustomize-controller apply a folder with a Lock, and returns why the Kustomization is not ready.
func applyWithFlux(ctx context.Context, folder string, changes ...func(spec map[string]any)) error {
	GinkgoHelper()
	return fluxController(ctx).submit(ctx, []string{folder}, changes...)[folder]()
}
