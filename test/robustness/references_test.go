package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// podKeyPrefix begins the keys of locks that are held for Pods. The model does not know them,
	// since no caller ends most of them.
	podKeyPrefix = "pod-"
	podKeys      = 2
	keepers      = 3
	// podTTL is longer than everything that ends such a lock, so its end is never an expiry.
	podTTL = 5 * time.Minute
	// referenceBound is how long after the end of a Pod or Job its lock may remain while requests of all replicas get through,
	// and their watches work: another replica may have to become the leader, and to list Pods and Jobs again.
	referenceBound = 10 * time.Second
)

// tenure is the time of a Pod for which a lock was wanted.
type tenure struct {
	pod, key, owner string
	// released is when the keeper sent a release, or zero. ended is when it began to end the Pod,
	// gone when that was answered.
	released, ended, gone time.Duration
	// token is that of the grant that the keeper was told of, unless err is set.
	token int64
	err   error
}

func (t *tenure) String() string {
	return fmt.Sprintf("%s asked for %s, owner %s, released it from %s on, ended from %s on and had ended at %s: %v", t.pod, t.key, short(t.owner), t.released, t.ended, t.gone, t.err)
}

// outcome says what ended the lock.
func (t *tenure) outcome() string {
	switch {
	case t.err != nil:
		return "not acquired"
	case t.released > 0:
		return "held and released"
	}
	return "held until the Pod ended"
}

// keeper is a client that acquires locks for Pods, and ends the Pods. Nothing runs in them.
type keeper struct {
	*cluster

	number   int
	backends []lock.Backend
	random   *rand.Rand
	made     int
	// left are the Pods that have succeeded and still exist.
	left []*corev1.Pod
}

// runKeepers starts the work of all keepers.
func (c *cluster) runKeepers(ctx context.Context, seed uint64, workers *sync.WaitGroup) {
	var backends []lock.Backend
	for _, address := range c.addresses() {
		backend, err := client.New("http://" + address)
		if err != nil {
			panic(err) // The address is one.
		}
		backends = append(backends, backend)
	}
	for number := range keepers {
		keeper := &keeper{cluster: c, number: number, backends: backends, random: rand.New(rand.NewPCG(seed, 700+uint64(number)))}
		workers.Go(func() { keeper.run(ctx) })
	}
}

func (k *keeper) run(ctx context.Context) {
	for pause(ctx, between(k.random, time.Millisecond, 300*time.Millisecond)) {
		k.session(context.WithoutCancel(ctx))
	}
	for _, pod := range k.left {
		insist(context.WithoutCancel(ctx), func(ctx context.Context) error { return k.remove(ctx, pod) })
	}
}

func (k *keeper) session(ctx context.Context) {
	k.made++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: clientNamespace, Name: fmt.Sprintf("keeper-%d-%d-%d", k.history.start.UnixNano(), k.number, k.made)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "work", Image: "work"}}},
	}
	if !insist(ctx, func(ctx context.Context) error { return k.create(ctx, pod) }) {
		return
	}
	held := tenure{pod: pod.Name, key: fmt.Sprintf("%s%d", podKeyPrefix, k.random.IntN(podKeys)), owner: lock.NewOwner()}
	backend := k.backends[k.random.IntN(len(k.backends))]
	granted, err := backend.Acquire(ctx, clientNamespace, lock.Request{Wait: between(k.random, time.Millisecond, 5*time.Second), Acquisition: rules.Acquisition{
		Scope: v1alpha1.ScopeGlobal, Key: held.key, Owner: held.owner, TTL: podTTL,
		HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}})
	if err == nil {
		held.token, err = granted.FencingToken()
	}
	held.err = err
	if held.err == nil {
		k.pause(ctx, 100*time.Millisecond, 3*time.Second)
		if k.random.IntN(4) == 0 {
			held.released = k.history.now()
			_ = backend.Release(ctx, clientNamespace, v1alpha1.FullKeyOf(held.key), lock.Proof{Owner: held.owner})
		}
	}
	end := k.remove
	if k.random.IntN(2) == 0 {
		end = k.succeed
		k.left = append(k.left, pod)
	}
	held.ended = k.history.now()
	held.gone = never
	if insist(ctx, func(ctx context.Context) error { return end(ctx, pod) }) {
		held.gone = k.history.now()
	}
	k.history.addTenure(held)
}

func (k *keeper) pause(ctx context.Context, low, high time.Duration) {
	pause(ctx, between(k.random, low, high))
}

// create is repeated after answers that were lost.
func (k *keeper) create(ctx context.Context, pod *corev1.Pod) error {
	err := k.admin.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = k.admin.Get(ctx, kubeclient.ObjectKeyFromObject(pod), pod)
	}
	return err
}

// remove deletes the Pod at once, as it was never on a node.
func (k *keeper) remove(ctx context.Context, pod *corev1.Pod) error {
	return kubeclient.IgnoreNotFound(k.admin.Delete(ctx, pod, kubeclient.GracePeriodSeconds(0)))
}

// succeed does what the kubelet does. There is no other writer.
func (k *keeper) succeed(ctx context.Context, pod *corev1.Pod) error {
	if err := k.admin.Get(ctx, kubeclient.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodSucceeded
	return k.admin.Status().Update(ctx, pod)
}

// insist repeats a request until it is answered, but not for ever. The API server may be away.
func insist(ctx context.Context, send func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, patience)
		err := send(attempt)
		end()
		if err == nil {
			return true
		}
		if !pause(ctx, retry) {
			return false
		}
	}
}

// checkReferences checks that no lock ends before the Pod that it is held for.
func (r *record) checkReferences() (violations []string) {
	for index := range r.tenures {
		held := &r.tenures[index]
		if errors.Is(held.err, lock.ErrInvalid) || errors.Is(held.err, lock.ErrForbidden) {
			violations = append(violations, "references: refused though the Pod lived: "+held.String())
		}
		for _, grant := range r.byOwner[held.owner] {
			earliest := held.ended
			if held.released > 0 {
				earliest = min(earliest, held.released)
			}
			// A grant that no caller was told of may be ended at any time.
			if held.err == nil && grant.token == held.token && grant.to < earliest {
				violations = append(violations, fmt.Sprintf("references: the grant %d from %s was ended at %s though its Pod lived, with renewals %v: %s",
					grant.token, grant.from, grant.to, grant.renewals, held))
			}
		}
	}
	return violations
}

// checkRemains checks that each lock that is held for a Pod ends soon after it, and that of a Job ends, or is handed on.
func (r *record) checkRemains() (violations []string) {
	for index := range r.tenures {
		held := &r.tenures[index]
		if held.gone == never {
			continue
		}
		for _, grant := range r.byOwner[held.owner] {
			if limit, ok := r.watchedFor(referenceBound, max(grant.from, held.gone), r.end); ok && grant.to > limit {
				violations = append(violations, fmt.Sprintf("references: the grant %d still existed at %s: %s", grant.token, limit, held))
			}
		}
	}
	grants := r.byToken()
	for index := range r.jobs {
		held := &r.jobs[index]
		grant := grants[held.token]
		if grant == nil || held.done == never {
			continue
		}
		if limit, ok := r.watchedFor(referenceBound, max(grant.from, held.done), r.end); ok && grant.to > limit {
			violations = append(violations, fmt.Sprintf("jobs: the lock was still held at %s: %s", limit, held))
		}
	}
	return violations
}

// isForPod reports whether a keeper asked for the grant.
func (r *record) isForPod(made *grant) bool {
	return strings.Contains(made.key, podKeyPrefix) && slices.ContainsFunc(r.tenures, func(held tenure) bool {
		return held.owner == made.owner && "lock:"+held.key == made.key
	})
}
