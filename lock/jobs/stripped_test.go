package jobs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

func TestStrippedJobsKeepNoPodTemplate(t *testing.T) {
	whole := waiting(large, withToken, queued, condition(batchv1.JobSuspended, corev1.ConditionTrue), pods(1, 1))
	whole.Labels["app"] = "billing"
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.OwnerReferences = []metav1.OwnerReference{{Name: "cron"}}
	whole.Status.CompletedIndexes = "0-3"
	before := whole.DeepCopy()
	got := jobs.Stripped(whole)
	want := waiting(withToken, queued, condition(batchv1.JobSuspended, corev1.ConditionTrue), pods(1, 1))
	for _, meta := range []*metav1.ObjectMeta{&want.ObjectMeta, &want.Spec.Template.ObjectMeta} {
		metav1.SetMetaDataAnnotation(meta, "forrst.dev/stripped: patch the job instead of writing it", "")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(before, whole); diff != "" {
		t.Errorf("has modified the Job:\n%s", diff)
	}
	for _, annotations := range []map[string]string{got.Annotations, got.Spec.Template.Annotations} {
		if len(apivalidation.ValidateAnnotations(annotations, field.NewPath("annotations"))) == 0 {
			t.Error("the API server would store it")
		}
	}
}

// The last annotation that a patch removes must not take those along that the cache does not keep.
func TestAPatchOfAStrippedJobNeverReplacesItsAnnotations(t *testing.T) {
	cached := jobs.Stripped(waiting(withToken))
	changed := cached.DeepCopy()
	delete(changed.Spec.Template.Annotations, v1alpha1.FencingTokenAnnotation)
	delete(changed.Annotations, v1alpha1.LockKeyAnnotation)
	patch, err := client.MergeFrom(cached).Data(changed)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"annotations":{"forrst.dev/lock-key":null}},"spec":{"template":{"metadata":{"annotations":{"forrst.dev/fencing-token":null}}}}}`
	if diff := cmp.Diff(want, string(patch)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
