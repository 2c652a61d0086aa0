package jobgate

import (
	"context"
	"testing"

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
