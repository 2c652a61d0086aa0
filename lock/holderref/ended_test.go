package holderref_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

func podIn(phase corev1.PodPhase, reason string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Reason: reason}}
}

func jobWith(active, terminating int32, kind batchv1.JobConditionType, status corev1.ConditionStatus) *batchv1.Job {
	return &batchv1.Job{Status: batchv1.JobStatus{
		Active: active, Terminating: &terminating,
		Conditions: []batchv1.JobCondition{{Type: kind, Status: status, Reason: "Because"}},
	}}
}

func TestHowEnded(t *testing.T) {
	cases := map[string]struct {
		object client.Object
		want   string
	}{
		"a Pod that waits":               {podIn(corev1.PodPending, ""), ""},
		"a Pod that runs":                {podIn(corev1.PodRunning, "Because"), ""},
		"a Pod on a node that is lost":   {podIn(corev1.PodUnknown, "NodeLost"), ""},
		"a Pod that succeeded":           {podIn(corev1.PodSucceeded, ""), "has succeeded"},
		"a Pod that failed":              {podIn(corev1.PodFailed, ""), "has failed"},
		"a Pod that was evicted":         {podIn(corev1.PodFailed, "Evicted"), "has failed: Evicted"},
		"a Job that is new":              {&batchv1.Job{}, ""},
		"a Job that is suspended":        {jobWith(0, 0, batchv1.JobSuspended, corev1.ConditionTrue), ""},
		"a Job that is complete":         {jobWith(0, 0, batchv1.JobComplete, corev1.ConditionTrue), "is complete"},
		"a Job that is not complete":     {jobWith(0, 0, batchv1.JobComplete, corev1.ConditionFalse), ""},
		"a Job that failed":              {jobWith(0, 0, batchv1.JobFailed, corev1.ConditionTrue), "has failed: Because"},
		"a Job with pods that run":       {jobWith(1, 0, batchv1.JobComplete, corev1.ConditionTrue), ""},
		"a Job with pods that shut down": {jobWith(0, 1, batchv1.JobFailed, corev1.ConditionTrue), ""},
		"anything else":                  {&corev1.ConfigMap{}, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := holderref.HowEnded(test.object); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestReasonsAreCutBetweenCharacters is about reasons that are no names of the kubelet's.
func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	for _, reason := range []string{strings.Repeat("é", audit.MaxMessageBytes), "x" + strings.Repeat("é", audit.MaxMessageBytes), "\xff"} {
		how := holderref.HowEnded(podIn(corev1.PodFailed, reason))
		if !utf8.ValidString(how) || len(how) > audit.MaxMessageBytes+len("has failed: ") || !strings.HasPrefix(how, "has failed: ") {
			t.Errorf("%.10q: got %d bytes, valid: %t", reason, len(how), utf8.ValidString(how))
		}
	}
}

// oneReader counts the reads of its only object.
type oneReader struct {
	client.Reader
	there client.Object
	reads int
}

func (r *oneReader) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	if _, isMetadata := into.(*metav1.PartialObjectMetadata); isMetadata {
		into.SetUID(r.there.GetUID())
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.there)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
}

// valid returns the reference of a valid request.
func valid(t *testing.T, ref v1alpha1.HolderReference) rules.ValidReference {
	t.Helper()
	holder, err := (&rules.Acquisition{Key: "k", Holder: "alice", HolderRef: &ref}).Validate(rules.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return *holder
}

func TestCheckRefusesAnObjectThatHasEnded(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
	cases := map[string]struct {
		apiVersion, kind string
		there            client.Object
		want             string
	}{
		"a Pod that runs":        {"v1", "Pod", podIn(corev1.PodRunning, ""), ""},
		"a Pod that failed":      {"v1", "Pod", podIn(corev1.PodFailed, "Evicted"), "has already ended: Pod it has failed: Evicted"},
		"a Job that runs":        {"batch/v1", "Job", &batchv1.Job{}, ""},
		"a Job that is complete": {"batch/v1", "Job", jobWith(0, 0, batchv1.JobComplete, corev1.ConditionTrue), "has already ended: Job it is complete"},
		"anything else":          {"v1", "ConfigMap", &corev1.ConfigMap{}, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			test.there.SetUID("u")
			reader := &oneReader{there: test.there}
			checker := holderref.Checker{Reader: reader, Mapper: mapper, Kinds: holderref.NewKinds(schema.GroupKind{Kind: "ConfigMap"})}
			ref := v1alpha1.HolderReference{APIVersion: test.apiVersion, Kind: test.kind, Name: "it", UID: "u"}
			err := checker.Check(t.Context(), "default", valid(t, ref))
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v", err)
			case test.want != "" && (!errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %s", err, test.want)
			}
			if reader.reads != 1 {
				t.Errorf("%d reads, want one", reader.reads)
			}
			ref.UID = "another"
			if err := checker.Check(t.Context(), "default", valid(t, ref)); err == nil || strings.Contains(err.Error(), "ended") {
				t.Errorf("with another UID: got %v, which tells what stands under the name", err)
			}
		})
	}
}
