package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// guardableWrites measures what guards cost the writes of objects that no lock guards: in a namespace
// that has not opted in, in one that has, and in one where a lock guards another ConfigMap.
func guardableWrites(ctx context.Context, l *lab.Lab, r *report.Report) error {
	names := []string{"update, not opted in", "update, opted in", "update, another object guarded"}
	var contenders []measure.Contender
	for i, name := range names {
		namespace, err := guardableNamespace(ctx, l, fmt.Sprintf("guardable-%d", i), i > 0, i > 1)
		if err != nil {
			return err
		}
		made, err := contender.NewConfigMapWrites(name, l.Admin, namespace)
		if err != nil {
			return err
		}
		contenders = append(contenders, made)
	}
	results, err := l.Compare(ctx, &measure.Comparison{
		Name: "guardable writes, 1", Clients: 1, Rounds: l.Options.RoundsOf(20), Slice: 300 * time.Millisecond, Contenders: contenders,
	})
	if err != nil {
		return err
	}
	without := results[names[0]]
	without.Total.Latencies = without.Total.Acquires
	r.Add(without)
	for _, name := range names[1:] {
		with := results[name]
		with.Total.Latencies = with.Total.Acquires
		r.Add(with, report.AtMost(name+" / not opted in, p50", measure.Ratio(with, without, measure.Acquire), 1.3, ""))
	}
	return nil
}

// guardableNamespace creates a namespace that may opt in, with a lock that may guard a ConfigMap.
func guardableNamespace(ctx context.Context, l *lab.Lab, name string, isIn, hasGuard bool) (string, error) {
	clientset, err := kubernetes.NewForConfig(l.Admin)
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
	objects, err := contender.NewLockObjectsIn(l.Admin, name)
	if err != nil {
		return name, err
	}
	lock := contender.DeclaredLock("guarding", contender.OwnerOf(0))
	lock.Namespace = name
	lock.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "another"}}
	_, err = objects.Create(ctx, lock, metav1.CreateOptions{})
	return name, err
}
