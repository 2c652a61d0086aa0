// Command flux applies manifests and waits for them as kustomize-controller does, with the packages
// that it is made of.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	runtimeclient "github.com/fluxcd/pkg/runtime/client"
	"github.com/fluxcd/pkg/runtime/statusreaders"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func main() {
	var s settings
	flag.BoolVar(&s.force, "force", false, "The field force of the Kustomization.")
	flag.DurationVar(&s.wait, "wait", 0, "Wait for this time until all is ready. Zero does not wait.")
	flag.StringVar(&s.kustomization, "kustomization", "", "A file with the Kustomization, for its healthCheckExprs.")
	flag.StringVar(&s.serviceAccount, "service-account", "", "The field serviceAccountName of the Kustomization, in the namespace default.")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), &s, flag.Arg(0), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	force          bool
	wait           time.Duration
	kustomization  string
	serviceAccount string
}

// run applies the manifests in the file at path, and writes what has become of each object.
func run(ctx context.Context, s *settings, path string, out io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	objects, err := utils.ReadObjects(bytes.NewReader(text))
	if err != nil {
		return err
	}
	// As kustomize-controller does before it applies.
	if err := normalize.UnstructuredList(objects); err != nil {
		return err
	}
	cluster, poller, err := connect(ctx, s)
	if err != nil {
		return err
	}
	manager := ssa.NewResourceManager(cluster, poller, ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
	manager.SetOwnerLabels(objects, "application", "flux-system")
	options := ssa.DefaultApplyOptions()
	options.Force = s.force
	// As kustomize-controller sets it.
	options.IfNotPresentSelector = map[string]string{"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
	changes, err := manager.ApplyAll(ctx, objects, options)
	if err != nil {
		return err
	}
	for _, entry := range changes.Entries {
		if _, err := fmt.Fprintln(out, entry.Subject, entry.Action); err != nil {
			return err
		}
	}
	if s.wait == 0 {
		return nil
	}
	return wait(ctx, manager, objects, s.wait)
}

func wait(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured, timeout time.Duration) error {
	var set object.ObjMetadataSet
	for _, applied := range objects {
		set = append(set, object.UnstructuredToObjMetadata(applied))
	}
	options := ssa.DefaultWaitOptions()
	options.Interval, options.Timeout, options.FailFast = 200*time.Millisecond, timeout, true
	return manager.WaitForSetWithContext(ctx, set, options)
}

// connect returns the client and the reader of states of a Kustomization. With a service account that is
// kustomize-controller's own code; without one, it does what its method getClientAndPoller does.
func connect(ctx context.Context, s *settings) (client.Client, *polling.StatusPoller, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, err
	}
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		return nil, nil, err
	}
	checks, err := expressions(s.kustomization)
	if err != nil {
		return nil, nil, err
	}
	reader, err := cel.NewStatusReader(checks)
	if err != nil {
		return nil, nil, err
	}
	if s.serviceAccount != "" {
		options := []runtimeclient.ImpersonatorOption{runtimeclient.WithServiceAccount("", s.serviceAccount, "default")}
		if len(checks) > 0 {
			options = append(options, runtimeclient.WithPolling(nil, reader))
		}
		return runtimeclient.NewImpersonator(cluster, options...).GetClient(ctx)
	}
	readers := []engine.StatusReader{statusreaders.NewCustomJobStatusReader(cluster.RESTMapper())}
	if len(checks) > 0 {
		readers = append(readers, reader(cluster.RESTMapper()))
	}
	return cluster, polling.NewStatusPoller(cluster, cluster.RESTMapper(), polling.Options{CustomStatusReaders: readers}), nil
}

// expressions are the healthCheckExprs of a Kustomization in the file.
func expressions(path string) ([]kustomize.CustomHealthCheck, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	return kustomization.Spec.HealthCheckExprs, yaml.Unmarshal(text, &kustomization)
}
