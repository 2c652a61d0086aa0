package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestStrippedKeepsWhatTheServiceReads(t *testing.T) {
	whole := live(t)
	whole.Annotations = map[string]string{
		v1alpha1.AcquisitionAnnotation: "a", v1alpha1.ForceReleaseReasonAnnotation: "b",
		v1alpha1.ConnectionAnnotation: "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
	}
	whole.Labels = map[string]string{"app": "billing"}
	whole.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	given := enlarged(managed(whole, 100), 1000)
	before := given.DeepCopy()
	got := Stripped(given)
	want := annotated(whole, strippedAnnotation, "")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !IsStripped(got) {
		t.Error("is not marked")
	}
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("has modified the lock:\n%s", diff)
	}
	if again := Stripped(got); cmp.Diff(got, again) != "" || !IsStripped(again) {
		t.Error("is not the same when repeated")
	}
}

func TestStrippedKeepsNoLongTextAsAConnection(t *testing.T) {
	long := annotated(live(t), v1alpha1.ConnectionAnnotation, strings.Repeat("a", maxConnection+1))
	if got := Stripped(long); !IsStripped(got) || ConnectionOf(got) != "" {
		t.Errorf("has kept %q; marked: %t", ConnectionOf(got), IsStripped(got))
	}
}

func TestStrippedKeepsFewLabels(t *testing.T) {
	labelled := live(t)
	labelled.Labels = map[string]string{}
	for i := range maxKeptLabels {
		labelled.Labels[fmt.Sprint("label-", i)] = "x"
	}
	if Stripped(labelled) != labelled {
		t.Error("has stripped a lock with as many labels as are kept")
	}
	labelled.Labels["another"] = "x"
	if got := Stripped(labelled); !IsStripped(got) || got.Labels != nil || len(labelled.Labels) != maxKeptLabels+1 {
		t.Errorf("has kept %d labels; marked: %t", len(got.Labels), IsStripped(got))
	}
	labelled.Finalizers = []string{"foregroundDeletion"}
	if IsStripped(Stripped(labelled)) {
		t.Error("has stripped a lock that is written before it is deleted")
	}
}

func TestStrippedLeavesAWholeLock(t *testing.T) {
	whole := annotated(live(t), v1alpha1.AcquisitionAnnotation, "a")
	if Stripped(whole) != whole {
		t.Error("has copied a lock that has nothing to remove")
	}
	if got := Stripped(managed(whole, 100)); IsStripped(got) || cmp.Diff(whole, got) != "" {
		t.Error("a lock without its managed fields is whole: the API server keeps them in every write")
	}
	stuck := enlarged(live(t), 100)
	stuck.Finalizers = []string{"foregroundDeletion"}
	if IsStripped(Stripped(stuck)) {
		t.Error("has stripped a lock that is written before it is deleted")
	}
}

func TestAStrippedLockCannotBeStored(t *testing.T) {
	stripped := Stripped(enlarged(live(t), 100))
	if problems := apivalidation.ValidateAnnotations(stripped.Annotations, field.NewPath("metadata")); len(problems) == 0 {
		t.Error("the API server would store it")
	}
}
