package webhook

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/usage"
)

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=list;watch

// CountJobs returns a bound on the Jobs with [v1alpha1.LockLabel] in a namespace, whatever their state:
// each is in the memory of every replica until it is deleted. The manager runs the watch that counts
// them, on their metadata. Zero means no bound, and no watch.
func CountJobs(manager ctrl.Manager, most int) (*usage.Bound, error) {
	bound := usage.NewBound(most)
	if most <= 0 {
		return bound, nil
	}
	job := &metav1.PartialObjectMetadata{}
	job.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	labelled, err := cache.New(manager.GetConfig(), cache.Options{
		HTTPClient: manager.GetHTTPClient(), Scheme: manager.GetScheme(), Mapper: manager.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			job: {Label: labels.SelectorFromSet(labels.Set{v1alpha1.LockLabel: "true"}), Transform: onlyName},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the names of Jobs: %w", err)
	}
	informer, err := labelled.GetInformer(context.Background(), job, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch the names of Jobs: %w", err)
	}
	if _, err := informer.AddEventHandler(bound); err != nil {
		return nil, fmt.Errorf("count Jobs: %w", err)
	}
	return bound, manager.Add(labelled)
}

// onlyName drops everything but what the informer itself needs.
func onlyName(object any) (any, error) {
	job, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil // the tombstone of a transformed Job
	}
	job.ObjectMeta = metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion}
	return job, nil
}
