package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// run takes a pod from its scheduling to its end.
func (k *Kubelet) run(ctx context.Context, pod *corev1.Pod, known *pod) {
	if !k.bind(ctx, pod) || !k.began(pod, known) {
		return
	}
	k.setPhase(ctx, pod, corev1.PodRunning)
	phase := corev1.PodSucceeded
	if pod.Annotations[Fails] != "" {
		phase = corev1.PodFailed
	}
	select {
	case <-ctx.Done():
		return
	case <-known.lost:
		return
	case <-known.ended:
	case <-known.failed:
		phase = corev1.PodFailed
	case <-after(pod.Annotations[RunFor]):
	case <-known.deleted:
		phase = corev1.PodFailed
		select {
		case <-known.lost:
			return
		case <-known.removed:
		case <-after(orZero(pod.Annotations[StopFor])):
		}
	}
	k.finished(pod, known)
	k.setPhase(ctx, pod, phase)
	select {
	case <-ctx.Done():
	case <-known.deleted:
		k.remove(ctx, pod)
	}
}

// after returns a channel that has a value after a duration; never if it is "forever".
func after(text string) <-chan time.Time {
	if text == "forever" {
		return nil
	}
	duration, _ := time.ParseDuration(orZero(text)) // A malformed duration counts as zero.
	return time.After(duration)
}

func orZero(text string) string {
	if text == "" {
		return "0s"
	}
	return text
}

// bind gives the pod a node, and reports whether the pod exists.
func (k *Kubelet) bind(ctx context.Context, pod *corev1.Pod) bool {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: NodeName},
	}
	err := k.persist(ctx, func() error { return k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}) })
	return err == nil || pod.Spec.NodeName != ""
}

// setPhase reports the phase of the pod. Like a kubelet, it overwrites other writers.
func (k *Kubelet) setPhase(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) {
	status := map[string]any{"phase": phase}
	if phase == corev1.PodFailed {
		status["containerStatuses"] = failedContainers(pod)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		panic(err) // Strings and numbers always marshal.
	}
	_ = k.persist(ctx, func() error {
		_, err := k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

func failedContainers(pod *corev1.Pod) []corev1.ContainerStatus {
	exitCode := int64(1)
	if text, ok := pod.Annotations[ExitCode]; ok {
		exitCode, _ = strconv.ParseInt(text, 10, 32) // A malformed code counts as 0.
	}
	var statuses []corev1.ContainerStatus
	for i := range pod.Spec.Containers {
		statuses = append(statuses, corev1.ContainerStatus{
			Name: pod.Spec.Containers[i].Name, Image: pod.Spec.Containers[i].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(exitCode)}},
		})
	}
	return statuses
}

func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) {
	_ = k.persist(ctx, func() error {
		return k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	})
}

// persist repeats a request until the API server has answered it.
func (k *Kubelet) persist(ctx context.Context, request func() error) error {
	for {
		err := request()
		if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryAfter):
		}
	}
}

func jobOf(pod *corev1.Pod) (name string, uid types.UID) {
	return pod.Labels[batchv1.JobNameLabel], types.UID(pod.Labels[batchv1.ControllerUidLabel])
}

// began notes that the pod runs from now on, unless it was removed.
func (k *Kubelet) began(pod *corev1.Pod, known *pod) bool {
	name, uid := jobOf(pod)
	key := pod.Annotations[Key]
	k.mu.Lock()
	defer k.mu.Unlock()
	if known.removed.isGiven() {
		return false
	}
	known.isRunning = true
	k.starts = append(k.starts, Started{
		Pod: pod.Name, Job: name, UID: uid, Key: key, Token: pod.Annotations[v1alpha1.FencingTokenAnnotation], At: time.Now(),
	})
	if key == "" {
		return true
	}
	if k.running[key] == nil {
		k.running[key] = map[types.UID]int{}
	}
	k.running[key][uid]++
	if len(k.running[key]) > 1 {
		k.violations = append(k.violations, fmt.Sprintf("pod %s of Job %s runs together with pods of %v: %s", pod.Name, uid, k.running[key], key))
	}
	return true
}

// finished notes that the pod runs no more. It is noted before others can know.
func (k *Kubelet) finished(pod *corev1.Pod, known *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finish(pod, known)
}

// finish requires the mutex. Repeated calls have no effect.
func (k *Kubelet) finish(pod *corev1.Pod, known *pod) {
	if !known.isRunning {
		return
	}
	known.isRunning = false
	_, uid := jobOf(pod)
	key := pod.Annotations[Key]
	if key == "" {
		return
	}
	k.running[key][uid]--
	if k.running[key][uid] == 0 {
		delete(k.running[key], uid)
	}
}
