package jobgate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestOnlyPodsWithATokenOfADeletedJobAreDeleted(t *testing.T) {
	now := metav1.Now()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "job", UID: "job", DeletionTimestamp: &now}}
	pod := func(name string, change func(*metav1.PartialObjectMetadata)) metav1.PartialObjectMetadata {
		pod := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: name, Annotations: map[string]string{v1alpha1.FencingTokenAnnotation: "7"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		}}
		change(&pod)
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return pod
	}
	pods := []metav1.PartialObjectMetadata{
		pod("its", func(*metav1.PartialObjectMetadata) {}),
		pod("without-token", func(pod *metav1.PartialObjectMetadata) { pod.Annotations = nil }),
		pod("of-another-job", func(pod *metav1.PartialObjectMetadata) { pod.OwnerReferences[0].UID = "another" }),
	}
	stored := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
	for _, pod := range pods {
		stored.WithObjects(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	}
	cluster := stored.Build()
	for i := range pods {
		pods[i].ResourceVersion = "999"
	}
	p := &pass{Reconciler: &Reconciler{Client: cluster}}
	if err := p.deletePods(t.Context(), job, pods); err != nil {
		t.Fatal(err)
	}
	var left corev1.PodList
	if err := cluster.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range left.Items {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"of-another-job", "without-token"}, names); diff != "" {
		t.Errorf("pods that are left (-want +got):\n%s", diff)
	}
}
