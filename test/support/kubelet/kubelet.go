package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Annotations of pods that decide how they run and end.
const (
	// RunFor is how long the pod runs; a pod without it succeeds at once, and one with
	// "forever" runs until it is deleted or told to end.
	RunFor = "test.forrst.dev/run-for"
	// StopFor is how long the pod takes to end after its deletion.
	StopFor = "test.forrst.dev/stop-for"
	// Fails makes the pod fail instead of succeed.
	Fails = "test.forrst.dev/fails"
	// ExitCode is the exit code of the pod's containers if it fails; 1 if unset.
	ExitCode = "test.forrst.dev/exit-code"
	// Key groups pods of which only those of one Job may run at a time.
	Key = "test.forrst.dev/key"
)

// NodeName is the name of the node that a [Kubelet] gives to all pods. There need not be a Node.
const NodeName = "node-1"

// retryAfter is the delay before a write is repeated that found no API server.
const retryAfter = 50 * time.Millisecond

// Kubelet runs pods. Use [Start] to make one. Safe for concurrent use.
type Kubelet struct {
	client kubernetes.Interface
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*pod
	// running counts the running pods of each Job, by key.
	running map[string]map[types.UID]int
	// starts are the starts of pods, in order.
	starts     []Started
	violations []string
}

// Started describes the start of a pod.
type Started struct {
	// Pod and Job are names, Key is the value of the annotation [Key].
	Pod, Job, Key string
	// UID is the UID of the Job.
	UID types.UID
	// Token is the fencing token in the annotations of the pod.
	Token string
	// At is when the kubelet started the pod.
	At time.Time
}

// pod is the state of one pod.
type pod struct {
	deleted, ended, failed, lost signal
	// removed is given when the object is deleted.
	removed signal
	// isTaken says that the pod runs or has run here, isRunning that it does.
	isTaken, isRunning bool
}

func newPod() *pod {
	return &pod{deleted: newSignal(), ended: newSignal(), failed: newSignal(), lost: newSignal(), removed: newSignal()}
}

// signal can be given once, under the mutex of the kubelet.
type signal chan struct{}

func newSignal() signal { return make(signal) }

func (s signal) isGiven() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

func (s signal) give() {
	if !s.isGiven() {
		close(s)
	}
}

// Start runs the pods of all namespaces until [Kubelet.Stop].
func Start(ctx context.Context, client kubernetes.Interface) (*Kubelet, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Kubelet{client: client, stop: cancel, pods: map[types.UID]*pod{}, running: map[string]map[types.UID]int{}}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.see(ctx, object) },
		UpdateFunc: func(_, object any) { k.see(ctx, object) },
		DeleteFunc: k.seeGone,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	k.all.Go(func() { informer.RunWithContext(ctx) })
	return k, nil
}

// Stop leaves all pods as they are and waits for running goroutines.
func (k *Kubelet) Stop() {
	k.stop()
	k.all.Wait()
}

// Violations describes each start of a pod while a pod of another Job with its key ran.
func (k *Kubelet) Violations() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.violations...)
}

// Starts returns the starts of pods so far, in order.
func (k *Kubelet) Starts() []Started {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Started(nil), k.starts...)
}

// End ends a pod that runs forever, now or as soon as it runs.
func (k *Kubelet) End(uid types.UID) { k.give(uid, func(pod *pod) signal { return pod.ended }) }

// Fail makes a pod fail, with the exit code of the annotation [ExitCode].
func (k *Kubelet) Fail(uid types.UID) { k.give(uid, func(pod *pod) signal { return pod.failed }) }

// Lose removes the node of a pod: no kubelet reports the pod any more, or ends it when it
// is deleted. It counts as running until it is removed.
func (k *Kubelet) Lose(uid types.UID) { k.give(uid, func(pod *pod) signal { return pod.lost }) }

func (k *Kubelet) give(uid types.UID, which func(*pod) signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	which(k.know(uid)).give()
}

func (k *Kubelet) know(uid types.UID) *pod {
	if k.pods[uid] == nil {
		k.pods[uid] = newPod()
	}
	return k.pods[uid]
}

func (k *Kubelet) see(ctx context.Context, object any) {
	seen, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.know(seen.UID)
	if !seen.DeletionTimestamp.IsZero() {
		known.deleted.give()
	}
	if !known.isTaken && seen.DeletionTimestamp.IsZero() && seen.Status.Phase == corev1.PodPending {
		known.isTaken = true
		k.all.Go(func() { k.run(ctx, seen, known) })
	}
}

// seeGone ends a pod that was removed. That is noted before the pods are seen
// that were created after.
func (k *Kubelet) seeGone(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	seen, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.know(seen.UID)
	k.finish(seen, known)
	known.deleted.give()
	known.removed.give()
}
