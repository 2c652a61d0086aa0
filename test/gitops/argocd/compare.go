package main

import (
	"encoding/json"
	"path/filepath"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// manager is the name under which Argo CD applies on the server's side.
const manager = "argocd-controller"

// comparisons are the options of an application by which Argo CD compares. Without IncludeMutationWebhook=true it
// leaves out what webhooks change.
var comparisons = map[string][]diff.Option{
	"":                    nil,
	"ServerSideDiff=true": {diff.WithServerSideDiff(true), diff.WithIgnoreMutationWebhook(true)},
	"ServerSideDiff=true,IncludeMutationWebhook=true": {diff.WithServerSideDiff(true), diff.WithIgnoreMutationWebhook(false)},
}

// difference is a resource that is not in the cluster as its manifest says.
type difference struct {
	Options  string          `json:"options"`
	Resource string          `json:"resource"`
	Wanted   json.RawMessage `json:"wanted,omitempty"`
	Live     json.RawMessage `json:"live,omitempty"`
	// Error is why the two cannot be compared.
	Error string `json:"error,omitempty"`
}

// compareFolder compares a folder with the cluster, once for each of the comparisons.
func (s *syncer) compareFolder(folder string) outcome {
	ended := outcome{Folder: folder}
	var err error
	if ended.Differences, err = s.compare(folder); err != nil {
		ended.Error = err.Error()
	}
	return ended
}

func (s *syncer) compare(folder string) ([]difference, error) {
	application := filepath.Base(folder)
	objects, err := read(folder, application)
	if err != nil {
		return nil, err
	}
	live, err := s.cache.GetManagedLiveObjs(objects, func(resource *cache.Resource) bool { return resource.Info == application })
	if err != nil {
		return nil, err
	}
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	operations, cleanup, err := kubectl.ManageServerSideDiffDryRuns(s.config)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	always := []diff.Option{
		diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(operations)), diff.WithManager(manager),
		diff.WithGVKParser(s.cache.GetGVKParser()), diff.WithLogr(logr.Discard()),
	}
	var found []difference
	for name, options := range comparisons {
		for _, object := range objects {
			different := difference{Options: name, Resource: object.GetKind() + "/" + object.GetName()}
			if different.find(object, live[kube.GetResourceKey(object)], append(options, always...)) {
				found = append(found, different)
			}
		}
	}
	return found, nil
}

// find reports whether there is a difference, or none can be found.
func (d *difference) find(object, live *unstructured.Unstructured, options []diff.Option) bool {
	if live == nil {
		d.Error = "is not there"
		return true
	}
	result, err := diff.Diff(object.DeepCopy(), live.DeepCopy(), options...)
	if err != nil {
		d.Error = err.Error()
		return true
	}
	d.Wanted, d.Live = result.PredictedLive, result.NormalizedLive
	return result.Modified
}
