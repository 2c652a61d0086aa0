package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

const (
	lockedJobs = 500
	lockedKeys = 50
	// jobRunsFor leaves a small machine with two cores some idle time. Without a run time, the Job controller and the API
	// server would be the bottleneck of fifty Jobs.
	jobRunsFor = 2 * time.Second
	// bareKey is the annotation with the key of a Job for the bare controller.
	bareKey = "bench/key"
)

// jobsInTurn compares locked Jobs with Jobs of a bare controller, which starts the next Job of a key when it sees that the
// previous Job is complete.
func jobsInTurn(b *bench) {
	node := must(kubelet.Start(b, b.clientset))
	b.cleanup(node.Stop)
	var bare []float64
	var bareDisturbance string
	b.within(func(b *bench) {
		startBareController(b)
		bare, bareDisturbance = runJobs(b, node, "bare", func(job *batchv1.Job, key string) {
			job.Annotations = map[string]string{bareKey: key}
			job.Spec.Suspend = new(true)
		})
	})
	locked, disturbance := runJobs(b, node, "locked", func(job *batchv1.Job, key string) {
		job.Labels = map[string]string{v1alpha1.LockLabel: "true"}
		job.Annotations = map[string]string{v1alpha1.LockKeyAnnotation: key}
	})
	median := quantile(bare, 0.5)
	var ratios []float64
	for _, seconds := range locked {
		ratios = append(ratios, seconds/median)
	}
	scenario, what := fmt.Sprintf("%d Jobs on %d keys", lockedJobs, lockedKeys), "start to next start, without the run"
	b.note(scenario, "bare controller", noted(what, samples(bare, bareDisturbance), " s"))
	b.note(scenario, "locked Jobs", noted(what, samples(locked, disturbance), " s"),
		atMost(what+" / bare", samples(ratios, bareDisturbance+disturbance), 1.5, ""))
}

// runJobs creates all Jobs, and returns the seconds between the starts of their pods on each key, without the time that a
// pod runs. Then it makes room for the next ones.
func runJobs(b *bench, node *kubelet.Kubelet, prefix string, prepare func(job *batchv1.Job, key string)) (seconds []float64, disturbance string) {
	jobs := b.clientset.BatchV1().Jobs(namespace)
	before := len(node.Starts())
	created := make([]types.UID, lockedJobs)
	poll := func(isSo func() bool) {
		for !isSo() {
			check(waitUntil(b, time.Now().Add(200*time.Millisecond)))
		}
	}
	disturbance = b.machine.during(func() {
		for i := range created {
			key := fmt.Sprintf("key-%02d", i%lockedKeys)
			job := benchJob(fmt.Sprintf("%s-%03d", prefix, i), key)
			prepare(job, key)
			created[i] = must(jobs.Create(b, job, metav1.CreateOptions{})).UID
		}
		poll(func() bool { return len(node.Starts()) >= before+lockedJobs })
	})
	seconds = must(betweenStarts(node.Starts()[before:], created, node.Violations()))
	check(jobs.DeleteCollection(b, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{}))
	poll(func() bool { return len(must(jobs.List(b, metav1.ListOptions{Limit: 1})).Items) == 0 })
	return seconds, disturbance
}

// betweenStarts fails unless every Job started exactly once, those of a key in the order of their creation, and never two
// at a time.
func betweenStarts(starts []kubelet.Started, created []types.UID, violations []string) ([]float64, error) {
	if len(starts) != len(created) || len(violations) > 0 {
		return nil, fmt.Errorf("%d pods were started for %d Jobs, %d of them together with another one of their key", len(starts), len(created), len(violations))
	}
	var seconds []float64
	last := map[string]kubelet.Started{}
	for _, started := range starts {
		if before, ok := last[started.Key]; ok {
			if slices.Index(created, started.UID) != slices.Index(created, before.UID)+lockedKeys {
				return nil, fmt.Errorf("%s was started out of turn", started.Job)
			}
			seconds = append(seconds, (started.At.Sub(before.At) - jobRunsFor).Seconds())
		}
		last[started.Key] = started
	}
	return seconds, nil
}

func benchJob(name, key string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubelet.Key: key, kubelet.RunFor: jobRunsFor.String()}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}}},
		}},
	}
}

// startBareController starts the Jobs of each key in the order in which it sees them, as an administrator: a policy lets the
// operator change no Job that is not under a lock.
func startBareController(b *bench) {
	jobs := b.clientset.BatchV1().Jobs(namespace)
	ctx, cancel := context.WithCancel(b)
	seen := must(jobs.Watch(ctx, metav1.ListOptions{}))
	var running sync.WaitGroup
	b.cleanup(running.Wait)
	b.cleanup(cancel)
	resume := func(name string) {
		running.Go(func() {
			// If it cannot, the scenario ends for want of starts.
			_, _ = jobs.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
		})
	}
	// A key that is here has a running Job, and these wait.
	waiting, completed := map[string][]string{}, map[types.UID]bool{}
	running.Go(func() {
		for event := range seen.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok || job.Annotations[bareKey] == "" {
				continue
			}
			key := job.Annotations[bareKey]
			queue, isRunning := waiting[key]
			switch {
			case event.Type == "ADDED" && isRunning:
				waiting[key] = append(queue, job.Name)
			case event.Type == "ADDED":
				waiting[key] = nil
				resume(job.Name)
			case job.Status.CompletionTime == nil || completed[job.UID]:
			case len(queue) == 0:
				completed[job.UID] = true
				delete(waiting, key)
			default:
				completed[job.UID] = true
				waiting[key] = queue[1:]
				resume(queue[0])
			}
		}
	})
}
