package holders

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestEndedPodsAreSmall is about a cluster with many Pods that were never deleted.
func TestEndedPodsAreSmall(t *testing.T) {
	pod := podNamed("worker", "pod-1")
	pod.Labels = map[string]string{batchv1.ControllerUidLabel: "job-1", "app": strings.Repeat("a", 63)}
	pod.Annotations = map[string]string{"large": strings.Repeat("a", 1<<10)}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	pod.OwnerReferences = []metav1.OwnerReference{{Name: "batch"}}
	kept, err := onlyIdentity(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := podNamed("worker", "pod-1")
	want.Labels = map[string]string{batchv1.ControllerUidLabel: "job-1"}
	if diff := cmp.Diff(any(want), kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLocksOfAnEndedPod(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lockFor := func(namespace, name, uid string) *v1alpha1.Lock {
		return &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.LockSpec{HolderRef: &v1alpha1.HolderReference{UID: types.UID(uid)}},
		}
	}
	locks := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Lock{}, holderUIDIndex, holderUID).WithObjects(
		lockFor("default", "of-the-pod", "pod-1"), lockFor("default", "of-its-job", "job-1"),
		lockFor("default", "of-another", "pod-2"), lockFor("elsewhere", "of-the-pod", "pod-1"),
		&v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-nothing"}},
	).Build()
	reconciler := &Reconciler{Client: locks}
	pod := podNamed("worker", "pod-1")
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, request := range reconciler.locksOf(t.Context(), pod) {
			got = append(got, request.String())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	expect("default/of-the-pod")
	pod.Labels = map[string]string{batchv1.ControllerUidLabel: "job-1"}
	expect("default/of-the-pod", "default/of-its-job")
}
