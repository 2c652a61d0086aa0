package jobgate

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counted counts the lists of pods.
type counted struct {
	client.Reader

	lists int
}

func (c *counted) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, list, options...)
}

func TestOneListShowsThePodsOfADeletedJob(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", stopping)
	w.pods[job.UID] = true
	w.grant(job)
	w.pass(1)
	if err := w.cluster.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.write(job, answered)
	reader := &counted{Reader: w.reconciler.LiveReader}
	w.reconciler.LiveReader = reader
	w.pass(1)
	if reader.lists != 1 {
		t.Errorf("%d lists", reader.lists)
	}
}

func TestAPodThatKeepsALockByItsLabelIsNamed(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.pass(1)
	w.complete(job, true)
	look := func() []string {
		t.Helper()
		w.told()
		for range 3 {
			w.clock.Step(podsPeriod)
			w.pass(1)
		}
		return w.told()
	}
	if said := look(); len(said) > 0 {
		t.Errorf("a pod of the Job's own is told of: %q", said)
	}
	for _, name := range []string{"squatter", "other"} {
		w.foreignPod = name
		want := "Warning LockKept Keeps lock:key until the Pod " + name + " has ended, which has the label batch.kubernetes.io/controller-uid of this Job and is not controlled by it"
		if diff := cmp.Diff([]string{want}, look()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if w.holder() != "a" {
		t.Error("the lock was released while a pod runs")
	}
}
