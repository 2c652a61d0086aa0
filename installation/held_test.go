package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/apianswers"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// pages is a reader that returns one object at a time.
type pages struct {
	client.Reader
	jobs  []batchv1.Job
	locks []v1alpha1.Lock
	err   error
	// undefined is what a list of Locks is told if their definition is gone.
	undefined error
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
		if p.undefined != nil {
			return p.undefined
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
	for _, undefined := range []error{
		&apimeta.NoKindMatchError{GroupKind: v1alpha1.GroupVersion.WithKind("Lock").GroupKind()},
		&apiutil.ErrResourceDiscoveryFailed{v1alpha1.GroupVersion: apierrors.NewNotFound(schema.GroupResource{}, "")},
		fmt.Errorf("list: %w", apianswers.ErrNotServed),
	} {
		if lines := held(t, &pages{jobs: []batchv1.Job{job}, undefined: undefined}); len(lines) != 1 {
			t.Errorf("with %v: got %q, want a line for the Job alone", undefined, lines)
		}
	}
}

// What cannot be read may be held.
func TestHeldWithoutAnAnswer(t *testing.T) {
	down := errors.New("down")
	if _, err := Held(t.Context(), &pages{err: down}, clocktesting.NewFakePassiveClock(now)); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
}
