package installation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// pages is a reader that returns one object at a time.
type pages struct {
	client.Reader
	jobs  []batchv1.Job
	locks []v1alpha1.Lock
	err   error
	// isUndefined says that the definition of Locks is gone.
	isUndefined bool
}

func (p *pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	at, _ := strconv.Atoi(asked.Continue)
	length := 0
	switch list := list.(type) {
	case *batchv1.JobList:
		list.Items, length = p.jobs[at:min(at+1, len(p.jobs))], len(p.jobs)
	case *v1alpha1.LockList:
		if p.isUndefined {
			return &apimeta.NoKindMatchError{GroupKind: v1alpha1.GroupVersion.WithKind("Lock").GroupKind()}
		}
		list.Items, length = p.locks[at:min(at+1, len(p.locks))], len(p.locks)
	}
	if at+1 < length {
		list.SetContinue(strconv.Itoa(at + 1))
	}
	return p.err
}

func held(t *testing.T, reader *pages) []string {
	t.Helper()
	lines, err := Held(t.Context(), reader, clocktesting.NewFakePassiveClock(now))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func job(name string, finalizers ...string) batchv1.Job {
	return batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: name, Finalizers: finalizers}, Spec: batchv1.JobSpec{Suspend: new(true)}}
}

func lockUntil(name string, end time.Time) v1alpha1.Lock {
	return v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: name},
		Spec:       v1alpha1.LockSpec{Key: name, Owner: "secret-token", Holder: "ann", ExpireTime: new(v1alpha1.NewTimestamp(end))},
	}
}

func TestHeld(t *testing.T) {
	lines := held(t, &pages{
		jobs: []batchv1.Job{job("plain"), job("waiting", v1alpha1.LockFinalizer), job("other", "example.com/other"), job("second", v1alpha1.LockFinalizer)},
		locks: []v1alpha1.Lock{
			lockUntil("held", now.Add(time.Second)), lockUntil("expired", now), lockUntil("other", now.Add(time.Hour)),
		},
	})
	want := []string{
		"Job payments/waiting has the finalizer forrst.dev/lock: Waiting",
		"Job payments/second has the finalizer forrst.dev/lock: Waiting",
		`Lock payments/held is held by "ann" until 2026-11-23T12:00:01Z`,
		`Lock payments/other is held by "ann" until 2026-11-23T13:00:00Z`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q", lines)
	}
	if strings.Contains(strings.Join(lines, ""), "secret-token") {
		t.Error("an owner token is told")
	}
}

func TestHeldNothing(t *testing.T) {
	if lines := held(t, &pages{}); len(lines) != 0 {
		t.Errorf("got %q", lines)
	}
}

func TestHeldWithoutTheDefinition(t *testing.T) {
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", Finalizers: []string{v1alpha1.LockFinalizer}}}
	if lines := held(t, &pages{jobs: []batchv1.Job{job}, isUndefined: true}); len(lines) != 1 {
		t.Errorf("got %q, want a line for the Job alone", lines)
	}
}

// What cannot be read may be held.
func TestHeldWithoutAnAnswer(t *testing.T) {
	down := errors.New("down")
	if _, err := Held(t.Context(), &pages{err: down}, clocktesting.NewFakePassiveClock(now)); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
}
