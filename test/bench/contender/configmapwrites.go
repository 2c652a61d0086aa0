package contender

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/measure"
)

// configMapWrites updates a ConfigMap of its own in a namespace.
type configMapWrites struct {
	maps    typedcorev1.ConfigMapInterface
	current *corev1.ConfigMap
	writes  int
}

// NewConfigMapWrites returns updates of ConfigMaps in the namespace as a contender with an identity.
func NewConfigMapWrites(name string, config *rest.Config, namespace string) (measure.Contender, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return measure.Contender{}, err
	}
	maps := clientset.CoreV1().ConfigMaps(namespace)
	return measure.Contender{Name: name, Resource: "configmaps", Open: func(ctx context.Context, client int) (measure.Locker, error) {
		created, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", client)},
		}, metav1.CreateOptions{})
		return &configMapWrites{maps: maps, current: created}, err
	}}, nil
}

// Acquire implements [measure.Locker].
func (w *configMapWrites) Acquire(ctx context.Context, _ string) error {
	w.writes++
	w.current.Data = map[string]string{"writes": fmt.Sprint(w.writes)}
	next, err := w.maps.Update(ctx, w.current, metav1.UpdateOptions{})
	if err == nil {
		w.current = next
	}
	return err
}

// Release implements [measure.Locker].
func (w *configMapWrites) Release(context.Context, string) error { return nil }

// Close implements [measure.Locker].
func (w *configMapWrites) Close() {}
