package portrait

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is wrong with a node that cannot end its Pods.
const (
	nodeGone   = "does not exist"
	nodeSilent = "does not report"
)

// askNode finds out whether the node of a Pod works. If not, the Pod's state is only the last one that the node
// has told.
func (g *gathering) askNode(ctx context.Context, pod *Pod) {
	if pod.Node == "" || pod.Phase == string(corev1.PodSucceeded) || pod.Phase == string(corev1.PodFailed) {
		return
	}
	node := new(corev1.Node)
	err := g.Cluster.Get(ctx, client.ObjectKey{Name: pod.Node}, node)
	switch {
	case apierrors.IsNotFound(err):
		pod.NodeTrouble = nodeGone
	case apierrors.IsForbidden(err):
		g.unknown("whether the nodes of the Pods are ready", err)
	case err != nil:
		g.unknown("whether node "+pod.Node+" is ready", err)
	default:
		pod.NodeTrouble, pod.NodeTroubleSince = troubleOf(node)
	}
}

// troubleOf says why Pods of the node may not work; empty if it is ready.
func troubleOf(node *corev1.Node) (trouble string, since time.Time) {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		since = condition.LastTransitionTime.Time
		switch condition.Status {
		case corev1.ConditionTrue:
			return "", time.Time{}
		case corev1.ConditionFalse:
			return "is not ready", since
		case corev1.ConditionUnknown:
		}
		return nodeSilent, since
	}
	return "has not reported that it is ready", node.CreationTimestamp.Time
}
