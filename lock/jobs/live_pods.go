package jobs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// livePhases selects the pods that have not ended.
var livePhases = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// ListLive returns the metadata of the Job's pods that have not ended, at most limit of them; zero
// means all. It finds them by the label of the Job controller, including pods that an orphaning
// delete has left without an owner.
func ListLive(ctx context.Context, reader client.Reader, namespace string, job types.UID, limit int64) ([]metav1.PartialObjectMetadata, error) {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := reader.List(ctx, &pods, client.InNamespace(namespace), client.Limit(limit),
		client.MatchingLabels{batchv1.ControllerUidLabel: string(job)}, client.MatchingFieldsSelector{Selector: livePhases}); err != nil {
		return nil, fmt.Errorf("list the pods of a Job: %w", err)
	}
	return pods.Items, nil
}

// AnyLive reports whether the Job has pods that have not ended.
func AnyLive(ctx context.Context, reader client.Reader, namespace string, job types.UID) (bool, error) {
	pods, err := ListLive(ctx, reader, namespace, job, 1)
	return len(pods) > 0, err
}
