// Command argocd syncs folders of manifests as Argo CD does, with its engine: by hooks, sync waves and
// the built-in health checks. Or it compares them with the cluster.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	gitopssync "github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// instanceLabel is the label by which Argo CD knows what belongs to an application.
const instanceLabel = "app.kubernetes.io/instance"

// stepInterval is the time between two steps of a sync.
const stepInterval = 500 * time.Millisecond

// outcome is how the sync of a folder has ended, one JSON object per line of the output.
type outcome struct {
	Folder string `json:"folder"`
	// Phases are those of the resources that were synced, by kind and name.
	Phases map[string]common.OperationPhase `json:"phases"`
	// Messages are what became of the resources, by kind and name.
	Messages map[string]string `json:"messages"`
	// Phase is that of the whole sync, empty if it did not end.
	Phase       common.OperationPhase `json:"phase"`
	Message     string                `json:"message"`
	Error       string                `json:"error,omitempty"`
	Differences []difference          `json:"differences,omitempty"`
}

func main() {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "The kubeconfig of the cluster.")
	flag.BoolVar(&s.force, "force", false, "Sync with the option Force=true.")
	flag.BoolVar(&s.serverSide, "server-side", false, "Sync with the option ServerSideApply=true.")
	flag.BoolVar(&s.compare, "diff", false, "Sync nothing, and compare the manifests with the cluster.")
	flag.Parse()
	if err := run(context.Background(), &s, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	kubeconfig                 string
	force, serverSide, compare bool
}

// run syncs or compares all folders at the same time.
func run(ctx context.Context, settings *settings, folders []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", settings.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	clusterCache := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (info any, cacheManifest bool) {
			application := object.GetLabels()[instanceLabel]
			return application, application != ""
		}))
	if err := clusterCache.EnsureSynced(); err != nil {
		return err
	}
	defer clusterCache.Invalidate()
	s := &syncer{config: config, cache: clusterCache, settings: settings}
	do := s.syncFolder
	if settings.compare {
		do = func(_ context.Context, folder string) outcome { return s.compareFolder(folder) }
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for _, folder := range folders {
		all.Go(func() {
			ended := do(ctx, folder)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, json.NewEncoder(os.Stdout).Encode(ended))
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// syncer syncs as the application controller does: each step begins with the state of the cluster and the
// results of the step before.
type syncer struct {
	*settings
	config *rest.Config
	cache  cache.ClusterCache
}

func (s *syncer) syncFolder(ctx context.Context, folder string) outcome {
	ended := outcome{Folder: folder, Phases: map[string]common.OperationPhase{}, Messages: map[string]string{}}
	application := filepath.Base(folder)
	objects, err := read(folder, application)
	if err != nil {
		ended.Error = err.Error()
		return ended
	}
	phase, message, results := common.OperationRunning, "", []common.ResourceSyncResult(nil)
	started := metav1.Now()
	for !phase.Completed() {
		phase, message, results, err = s.step(ctx, application, objects, gitopssync.WithInitialState(phase, message, results, started))
		if err != nil {
			ended.Error = err.Error()
			return ended
		}
		select {
		case <-ctx.Done():
			return ended
		case <-time.After(stepInterval):
		}
	}
	for _, result := range results {
		of := result.ResourceKey.Kind + "/" + result.ResourceKey.Name
		ended.Phases[of], ended.Messages[of] = result.HookPhase, result.Message
	}
	ended.Phase, ended.Message = phase, message
	return ended
}

func (s *syncer) step(ctx context.Context, application string, objects []*unstructured.Unstructured, state gitopssync.SyncOpt) (common.OperationPhase, string, []common.ResourceSyncResult, error) {
	var targets []*unstructured.Unstructured
	for _, object := range objects {
		targets = append(targets, object.DeepCopy())
	}
	live, err := s.cache.GetManagedLiveObjs(targets, func(resource *cache.Resource) bool { return resource.Info == application })
	if err != nil {
		return "", "", nil, err
	}
	reconciled := gitopssync.Reconcile(targets, live, "default", s.cache)
	step, cleanup, err := gitopssync.NewSyncContext("revision", reconciled, s.config, s.config, &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}},
		"default", gitopssync.WithLogr(logr.Discard()), gitopssync.WithOperationSettings(false, true, s.force, false),
		gitopssync.WithServerSideApply(s.serverSide), gitopssync.WithServerSideApplyManager(manager), state)
	if err != nil {
		return "", "", nil, err
	}
	defer cleanup()
	step.Sync()
	phase, message, results := step.GetState()
	return phase, message, results, ctx.Err()
}

// read returns the objects of a folder, which belong to the application.
func read(folder, application string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		parsed, err := kube.SplitYAML(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, parsed...)
	}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[instanceLabel] = application
		object.SetLabels(labels)
	}
	return objects, nil
}
