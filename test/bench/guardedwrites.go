package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// configMapWrites updates a ConfigMap of its own in a namespace.
type configMapWrites struct {
	maps    typedcorev1.ConfigMapInterface
	current *corev1.ConfigMap
	writes  int
}

func newConfigMapWrites(name string, config *rest.Config, namespace string) (contender, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return contender{}, err
	}
	maps := clientset.CoreV1().ConfigMaps(namespace)
	return contender{name: name, resource: "configmaps", open: func(ctx context.Context, client int) (locker, error) {
		created, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", client)},
		}, metav1.CreateOptions{})
		return &configMapWrites{maps: maps, current: created}, err
	}}, nil
}

func (w *configMapWrites) acquire(ctx context.Context, _ string) error {
	w.writes++
	w.current.Data = map[string]string{"writes": fmt.Sprint(w.writes)}
	next, err := w.maps.Update(ctx, w.current, metav1.UpdateOptions{})
	if err == nil {
		w.current = next
	}
	return err
}

func (w *configMapWrites) release(context.Context, string) error { return nil }

func (w *configMapWrites) close() {}

// guardableWrites measures what guards cost the writes of objects that no lock guards: in a namespace
// that has not opted in, in one that has, and in one where a lock guards another ConfigMap.
func guardableWrites(ctx context.Context, l *lab, r *report) error {
	names := []string{"update, not opted in", "update, opted in", "update, another object guarded"}
	var contenders []contender
	for i, name := range names {
		namespace, err := guardableNamespace(ctx, l, fmt.Sprintf("guardable-%d", i), i > 0, i > 1)
		if err != nil {
			return err
		}
		made, err := newConfigMapWrites(name, l.admin, namespace)
		if err != nil {
			return err
		}
		contenders = append(contenders, made)
	}
	results, err := l.compare(ctx, &comparison{
		name: "guardable writes, 1", clients: 1, rounds: l.options.roundsOf(30), slice: 300 * time.Millisecond, contenders: contenders,
	})
	if err != nil {
		return err
	}
	without := results[names[0]]
	without.total.latencies = without.total.acquires
	r.add(without)
	for _, name := range names[1:] {
		with := results[name]
		with.total.latencies = with.total.acquires
		r.add(with, atMost(name+" / not opted in, p50", float64(median(with.total.acquires))/float64(median(without.total.acquires)), 1.3, ""))
	}
	return nil
}

// guardableNamespace creates a namespace that may opt in, with a lock that may guard a ConfigMap.
func guardableNamespace(ctx context.Context, l *lab, name string, isIn, hasGuard bool) (string, error) {
	clientset, err := kubernetes.NewForConfig(l.admin)
	if err != nil {
		return "", err
	}
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if isIn {
		created.Labels = map[string]string{v1alpha1.GuardsLabel: v1alpha1.GuardsEnabled}
	}
	if _, err := clientset.CoreV1().Namespaces().Create(ctx, created, metav1.CreateOptions{}); err != nil || !hasGuard {
		return name, err
	}
	objects, err := newLockObjectsIn(l.admin, name)
	if err != nil {
		return name, err
	}
	lock := declaredLock("guarding", ownerOf(0))
	lock.Namespace = name
	lock.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "another"}}
	_, err = objects.Create(ctx, lock, metav1.CreateOptions{})
	return name, err
}
