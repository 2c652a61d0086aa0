package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

var now = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// submitted returns a Job as users write it.
func submitted(changes ...change) *batchv1.Job {
	return waiting(append([]change{func(job *batchv1.Job) { job.Finalizers, job.Spec.Suspend = nil, nil }}, changes...)...)
}

func labelled(name, value string) change {
	return func(job *batchv1.Job) { job.Labels[name] = value }
}

func annotated(name, value string) change {
	return func(job *batchv1.Job) { job.Annotations[name] = value }
}

func queued(job *batchv1.Job) {
	job.Annotations[v1alpha1.LockQueuedTimeAnnotation] = "2026-11-20T10:00:00.000000Z"
}

// stoppingMark is the annotation that the operator sets on a Job that it suspends.
func stoppingMark(job *batchv1.Job) { job.Annotations[v1alpha1.LockStoppingAnnotation] = "true" }

// filled has as many annotations of pods as leave room for a fencing token, and some
// bytes more.
func filled(more int) change {
	return func(job *batchv1.Job) {
		job.Spec.Template.Annotations = map[string]string{"x": strings.Repeat("x", 256*1024-1-len(v1alpha1.FencingTokenAnnotation+"9223372036854775807")+more)}
	}
}

// told is the operator's annotation on a waiting Job.
func told(job *batchv1.Job) { job.Annotations[v1alpha1.LockWaitingAnnotation] = "place 2 of 2" }

func finalizers(count int) []string {
	names := make([]string, 0, count)
	for index := range count {
		names = append(names, fmt.Sprintf("example.com/finalizer-%d", index))
	}
	return names
}

func finalized(count int) change {
	return func(job *batchv1.Job) { job.Finalizers = append(finalizers(count), job.Finalizers...) }
}

// large has much that the operator does not keep.
func large(job *batchv1.Job) {
	job.Annotations["example.com/note"] = strings.Repeat("x", 100<<10)
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Args: []string{strings.Repeat("x", 500<<10)}}}
}

func TestAdmitCreate(t *testing.T) {
	cases := map[string]struct {
		job *batchv1.Job
		// want is the admitted Job, wantField the path of the expected problem.
		want *batchv1.Job
		// Of several, the paths are joined by spaces.
		wantField string
	}{
		"is suspended":                        {job: submitted(), want: waiting(queued)},
		"is paused if its author wants it so": {job: submitted(func(job *batchv1.Job) { job.Spec.Suspend = new(true) }), want: waiting(paused, queued)},
		"is the same when asked again":        {job: waiting(queued), want: waiting(queued)},
		"whose finalizer was taken meanwhile": {job: submitted(queued, func(job *batchv1.Job) { job.Spec.Suspend = new(true) }), want: waiting(queued)},
		"of a backup is paused":               {job: waiting(annotated(v1alpha1.LockQueuedTimeAnnotation, "2026-11-19T10:00:00.000000Z")), want: waiting(paused, queued)},
		"with the finalizer is paused":        {job: waiting(), want: waiting(paused, queued)},
		"brings no token along":               {job: submitted(withToken), want: waiting(queued, func(job *batchv1.Job) { job.Spec.Template.Annotations = map[string]string{} })},
		"is left alone without a lock":        {job: submitted(labelled(v1alpha1.LockLabel, "false")), want: submitted(labelled(v1alpha1.LockLabel, "false"))},
		"with another label":                  {job: submitted(labelled(v1alpha1.LockLabel, "True")), wantField: "metadata.labels[forrst.dev/lock]"},
		"with a malformed annotation":         {job: submitted(annotated(v1alpha1.LockTTLAnnotation, "soon")), wantField: "metadata.annotations[forrst.dev/lock-ttl]"},
		"with an invisible key":               {job: submitted(annotated(v1alpha1.LockKeyAnnotation, "a\u200b")), wantField: "metadata.annotations[forrst.dev/lock-key]"},
		"with an invisible function": {job: submitted(annotated(v1alpha1.LockScopeAnnotation, "Function"), annotated(v1alpha1.LockFunctionAnnotation, "f ")),
			wantField: "metadata.annotations[forrst.dev/lock-function]"},
		"with a misspelt annotation":          {job: submitted(annotated("forrst.dev/lock-polcy", "skip")), wantField: "metadata.annotations[forrst.dev/lock-polcy]"},
		"of the manifest of one that waited":  {job: submitted(queued, annotated(v1alpha1.LockWaitingAnnotation, "place 1 of 2")), want: waiting(queued)},
		"of the manifest of one that stopped": {job: submitted(queued, stoppingMark), want: waiting(queued)},
		"with annotations of other tools":     {job: submitted(annotated("forrst.dev/locker", "x")), want: waiting(queued, annotated("forrst.dev/locker", "x"))},
		"of Kueue":                            {job: submitted(labelled("kueue.x-k8s.io/queue-name", "main")), wantField: "metadata.labels[kueue.x-k8s.io/queue-name]"},
		"with two mistakes": {job: submitted(annotated(v1alpha1.LockTTLAnnotation, "soon"), labelled("kueue.x-k8s.io/queue-name", "main")),
			wantField: "metadata.annotations[forrst.dev/lock-ttl] metadata.labels[kueue.x-k8s.io/queue-name]"},
		"of another controller":               {job: submitted(func(job *batchv1.Job) { job.Spec.ManagedBy = new("example.com/jobs") }), wantField: "spec.managedBy"},
		"with no room for the token":          {job: submitted(filled(1)), wantField: "spec.template.metadata.annotations"},
		"with just enough room for the token": {job: submitted(filled(0)), want: waiting(queued, filled(0))},
		"with many finalizers":                {job: submitted(finalized(600)), wantField: "metadata"},
		"with some finalizers":                {job: submitted(finalized(10)), want: waiting(queued, func(job *batchv1.Job) { job.Finalizers = append(finalizers(10), v1alpha1.LockFinalizer) })},
		"with a long text where one is short": {job: submitted(annotated(v1alpha1.LockPausedAnnotation, strings.Repeat("x", 9000))), wantField: "metadata"},
		"with a large pod template":           {job: submitted(large), want: waiting(queued, large)},
		"with a selector of its own":          {job: submitted(func(job *batchv1.Job) { job.Spec.ManualSelector = new(true) }), wantField: "spec.manualSelector"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			warnings, problems := jobs.AdmitCreate(test.job, limits, now)
			if test.wantField != "" {
				var fields []string
				for _, problem := range problems {
					fields = append(fields, problem.Field)
				}
				if strings.Join(fields, " ") != test.wantField {
					t.Fatalf("got %v, want problems of %s", problems, test.wantField)
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(test.want, test.job); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			// Whoever has a Job waits for it, and it waits for nothing.
			if _, isPaused := test.want.Annotations[v1alpha1.LockPausedAnnotation]; isPaused != (len(warnings) == 1) {
				t.Errorf("paused: %t, with the warnings %q", isPaused, warnings)
			}
		})
	}
}

func TestAdmitUpdate(t *testing.T) {
	running := func(changes ...change) *batchv1.Job {
		return waiting(append([]change{resumed, withToken, queued}, changes...)...)
	}
	without := func(name string) change {
		return func(job *batchv1.Job) { delete(job.Annotations, name) }
	}
	cases := map[string]struct {
		old, updated *batchv1.Job
		want         *batchv1.Job
		wantField    string
		wantWarning  bool
	}{
		"a start without the lock":       {old: waiting(queued), updated: waiting(queued, resumed), want: waiting(queued), wantWarning: true},
		"a start of a paused Job":        {old: waiting(paused), updated: waiting(paused, resumed), want: waiting(queued), wantWarning: true},
		"a stop":                         {old: running(), updated: running(func(job *batchv1.Job) { job.Spec.Suspend = new(true) }), want: waiting(withToken, queued, paused)},
		"a pause of a Job that waits":    {old: waiting(queued), updated: waiting(queued, paused), want: waiting(queued, paused)},
		"the end of that pause":          {old: waiting(paused), updated: waiting(), want: waiting(queued)},
		"another place in the queue":     {old: waiting(queued), updated: waiting(annotated(v1alpha1.LockQueuedTimeAnnotation, "2020-01-01T00:00:00Z")), want: waiting(queued)},
		"a forged report":                {old: waiting(queued), updated: waiting(queued, told), want: waiting(queued)},
		"a removed report":               {old: waiting(queued, told), updated: waiting(queued), want: waiting(queued, told)},
		"a pause of a Job that was told": {old: waiting(queued, told), updated: waiting(queued, told, paused), want: waiting(queued, paused)},
		"a misspelt annotation":          {old: waiting(), updated: waiting(annotated("forrst.dev/lock-prio", "3")), wantField: "metadata.annotations[forrst.dev/lock-prio]"},
		"one that was misspelt before":   {old: waiting(queued, annotated("forrst.dev/lock-prio", "3")), updated: waiting(queued, annotated("forrst.dev/lock-prio", "4")), want: waiting(queued, annotated("forrst.dev/lock-prio", "4"))},
		"a forged token":                 {old: waiting(queued), updated: waiting(queued, withToken), want: waiting(queued, func(job *batchv1.Job) { job.Spec.Template.Annotations = map[string]string{} })},
		"a removed token":                {old: running(), updated: running(func(job *batchv1.Job) { job.Spec.Template.Annotations = nil }), want: running()},
		"a removed finalizer":            {old: running(), updated: running(func(job *batchv1.Job) { job.Finalizers = nil }), want: running(), wantWarning: true},
		"a removed finalizer at the end": {old: running(condition(batchv1.JobComplete, corev1.ConditionTrue)), updated: running(func(job *batchv1.Job) { job.Finalizers = nil }), want: running(func(job *batchv1.Job) { job.Finalizers = nil })},
		"a forged finalizer":             {old: submitted(queued), updated: waiting(queued, resumed), want: submitted(queued, resumed, func(job *batchv1.Job) { job.Finalizers = []string{} }), wantWarning: true},
		"a removed mark":                 {old: waiting(queued, stoppingMark), updated: waiting(queued), want: waiting(queued, stoppingMark)},
		"a forged mark":                  {old: waiting(queued), updated: waiting(queued, stoppingMark), want: waiting(queued)},
		"another finalizer":              {old: running(), updated: running(func(job *batchv1.Job) { job.Finalizers = append(job.Finalizers, "orphan") }), want: running(func(job *batchv1.Job) { job.Finalizers = append(job.Finalizers, "orphan") })},
		"another priority":               {old: waiting(queued), updated: waiting(queued, annotated(v1alpha1.LockPriorityAnnotation, "3")), want: waiting(queued, annotated(v1alpha1.LockPriorityAnnotation, "3"))},
		"a malformed priority":           {old: waiting(), updated: waiting(annotated(v1alpha1.LockPriorityAnnotation, "x")), wantField: "metadata.annotations[forrst.dev/lock-priority]"},
		"a malformed priority beside a ttl that is not allowed any more": {
			old:       waiting(queued, annotated(v1alpha1.LockTTLAnnotation, "1000h")),
			updated:   waiting(queued, annotated(v1alpha1.LockTTLAnnotation, "1000h"), annotated(v1alpha1.LockPriorityAnnotation, "x")),
			wantField: "metadata.annotations[forrst.dev/lock-priority]",
		},
		"another priority beside a ttl that is not allowed any more": {
			old:     waiting(queued, annotated(v1alpha1.LockTTLAnnotation, "1000h")),
			updated: waiting(queued, annotated(v1alpha1.LockTTLAnnotation, "1000h"), annotated(v1alpha1.LockPriorityAnnotation, "3")),
			want:    waiting(queued, annotated(v1alpha1.LockTTLAnnotation, "1000h"), annotated(v1alpha1.LockPriorityAnnotation, "3")),
		},
		"many finalizers":                              {old: waiting(), updated: waiting(finalized(600)), wantField: "metadata"},
		"another priority beside many finalizers":      {old: waiting(queued, finalized(600)), updated: waiting(queued, finalized(600), annotated(v1alpha1.LockPriorityAnnotation, "3")), want: waiting(queued, finalized(600), annotated(v1alpha1.LockPriorityAnnotation, "3"))},
		"annotations that leave no room for the token": {old: waiting(), updated: waiting(filled(1)), wantField: "spec.template.metadata.annotations"},
		"another priority where there is no room":      {old: waiting(queued, filled(1)), updated: waiting(queued, filled(1), annotated(v1alpha1.LockPriorityAnnotation, "3")), want: waiting(queued, filled(1), annotated(v1alpha1.LockPriorityAnnotation, "3"))},
		"another key":                      {old: waiting(), updated: waiting(annotated(v1alpha1.LockKeyAnnotation, "other")), wantField: "metadata.annotations[forrst.dev/lock-key]"},
		"no key":                           {old: waiting(), updated: waiting(without(v1alpha1.LockKeyAnnotation)), wantField: "metadata.annotations[forrst.dev/lock-key]"},
		"another ttl":                      {old: waiting(), updated: waiting(annotated(v1alpha1.LockTTLAnnotation, "1m")), wantField: "metadata.annotations[forrst.dev/lock-ttl]"},
		"no label":                         {old: waiting(), updated: waiting(func(job *batchv1.Job) { job.Labels = nil }), wantField: "metadata.labels[forrst.dev/lock]"},
		"the label turned off":             {old: waiting(), updated: waiting(labelled(v1alpha1.LockLabel, "false")), wantField: "metadata.labels[forrst.dev/lock]"},
		"the label of a Job that had none": {old: submitted(func(job *batchv1.Job) { job.Labels = nil }), updated: submitted(), wantField: "metadata.labels[forrst.dev/lock]"},
		"a queue of Kueue":                 {old: waiting(), updated: waiting(labelled("kueue.x-k8s.io/queue-name", "main")), wantField: "metadata.labels[kueue.x-k8s.io/queue-name]"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			warnings, problems := jobs.AdmitUpdate(test.old, test.updated, limits, now, false)
			if test.wantField != "" {
				if len(problems) != 1 || problems[0].Field != test.wantField {
					t.Fatalf("got %v, want one problem of %s", problems, test.wantField)
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(test.want, test.updated); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if test.wantWarning != (len(warnings) > 0) {
				t.Errorf("warnings: %v", slices.Clone(warnings))
			}
		})
	}
}

func TestWhoMayForceTakesTheFinalizerFromADeletedJob(t *testing.T) {
	deleted := func(job *batchv1.Job) { job.DeletionTimestamp = &metav1.Time{Time: now} }
	bare := func(job *batchv1.Job) { job.Finalizers = nil }
	for name, test := range map[string]struct {
		old, updated *batchv1.Job
		isAbandoned  bool
	}{
		"from one that is being deleted":      {waiting(queued, deleted), waiting(queued, deleted, bare), true},
		"from one that is not":                {waiting(queued), waiting(queued, bare), false},
		"from one that has ended":             {waiting(deleted, condition(batchv1.JobComplete, corev1.ConditionTrue)), waiting(deleted, bare), false},
		"in no change of one that is deleted": {waiting(queued, deleted), waiting(queued, deleted), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := jobs.IsAbandoned(test.old, test.updated); got != test.isAbandoned {
				t.Errorf("abandoned: %t", got)
			}
		})
	}
	updated := waiting(queued, deleted, bare)
	if warnings, problems := jobs.AdmitUpdate(waiting(queued, deleted), updated, limits, now, true); len(warnings)+len(problems)+len(updated.Finalizers) > 0 {
		t.Errorf("got %v, %v and the finalizers %v", warnings, problems, updated.Finalizers)
	}
	updated = waiting(queued, deleted, bare)
	if warnings, _ := jobs.AdmitUpdate(waiting(queued, deleted), updated, limits, now, false); len(warnings) != 1 || len(updated.Finalizers) != 1 {
		t.Errorf("without the right, got %v and the finalizers %v", warnings, updated.Finalizers)
	}
}
