package process_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	facade "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// shippedBound is the default of --max-locks-per-namespace and --max-jobs-per-namespace.
	shippedBound = 5000
	// writers write at once, and may pass the bound by as many before the cache shows it.
	writers = 4
	// templateBytes is the size of the pod template of each Job, of which there may be 128 KiB in all.
	templateBytes = 100 << 10
)

var _ = Describe("A namespace that is filled up with locks and Jobs", func() {
	It("ends no process, keeps no others out, outlives no restart, and can be deleted", func(ctx context.Context) {
		// The cache of a busy machine may be far behind.
		fillUp(ctx, int(scale()*shippedBound), func(caller *caller) {
			for range 50 {
				Expect(caller.acquire(ctx)).To(Succeed())
			}
		})
	})
})

// fillUp fills a namespace until further objects are refused, restarts the operator, and deletes the namespace. So many more
// than the bound may pass while the cache is behind. Use calls a façade for another namespace, before and with the objects.
func fillUp(ctx context.Context, lag int, use func(*caller)) {
	GinkgoHelper()
	bound, limit := int(scale()*shippedBound), memoryLimit()
	flags := []string{fmt.Sprintf("--max-locks-per-namespace=%d", bound), fmt.Sprintf("--max-jobs-per-namespace=%d", bound)}
	first := newCage(limit)
	operator := startOperator(ctx, first, flags...)
	full, other := environment.Namespace(ctx, "full-"), environment.Namespace(ctx, "other-")
	caller := newCaller(ctx, operator.url, other)
	use(caller)

	By("filling it")
	Expect(apierrors.IsInvalid(editor.Client.Create(ctx, largeLock(full, "too-large", 20<<10)))).To(BeTrue())
	locks, refusal := fill(ctx, func(number int) client.Object { return largeLock(full, fmt.Sprint("lock-", number), 15<<10) })
	Expect(locks).To(And(BeNumerically(">=", bound), BeNumerically("<=", bound+writers+lag)))
	Expect(refusal).To(MatchError(ContainSubstring("has as many locks as it may have, %d", bound)))
	operator.expectAlive()
	jobs, refusal := fill(ctx, func(number int) client.Object { return largeJob(full, fmt.Sprint("job-", number)) })
	Expect(jobs).To(And(BeNumerically(">=", bound), BeNumerically("<=", bound+writers+lag)))
	Expect(refusal).To(MatchError(ContainSubstring("has as many Jobs with the label forrst.dev/lock as it may have, %d", bound)))
	operator.expectAlive()

	By("using it from another namespace while the editor goes on")
	stopTrying := keepTrying(ctx, full)
	use(caller)
	stopTrying()
	operator.expectAlive()
	AddReportEntry("memory", fmt.Sprintf("%d locks, %d Jobs: peak %d of %d MiB", locks, jobs, first.peak()>>20, limit>>20))

	By("refusing its callers a further lock, and giving others theirs")
	resident := newCaller(ctx, operator.url, full)
	_, err := resident.locks.Acquire(ctx, full, request("one-more"))
	Expect(err).To(MatchError(lock.ErrRefused))
	Expect(err).To(MatchError(ContainSubstring("has as many locks as it may have")))

	By("restarting")
	operator.stop()
	second := newCage(limit)
	operator = startOperator(ctx, second, flags...)
	Expect(newCaller(ctx, operator.url, other).acquire(ctx)).To(Succeed())
	operator.expectAlive()

	By("deleting it")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: full}}
	Expect(environment.Admin.Client.Delete(ctx, namespace)).To(Succeed())
	Eventually(func(ctx context.Context) error {
		return environment.Admin.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
	}).WithContext(ctx).WithTimeout(15 * patience).Should(MatchError(ContainSubstring("not found")))
	operator.expectAlive()
}

// largeLock is a lock of about so many bytes of text, of which a part stays in caches.
func largeLock(namespace, key string, bytes int) *v1alpha1.Lock {
	return fixture.Manifest(namespace, key, func(lock *v1alpha1.Lock) {
		lock.Labels = map[string]string{}
		for i := range bytes / 2 / 200 { // The managed fields repeat the names.
			lock.Labels[fmt.Sprintf("%s-%03d", strings.Repeat("k", 50), i)] = strings.Repeat("v", 60)
		}
		lock.Annotations = map[string]string{"example.com/note": strings.Repeat("x", bytes/2)}
	})
}

// largeJob is a Job that waits for a lock.
func largeJob(namespace, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "lock-0", "example.com/note": strings.Repeat("x", 10<<10)},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "example.com/main", Args: []string{strings.Repeat("x", templateBytes)}}},
		}}},
	}
}

// fill creates objects until they are refused, and returns how many were created and the refusal.
func fill(ctx context.Context, object func(number int) client.Object) (created int, refusal error) {
	GinkgoHelper()
	var next, count atomic.Int64
	var once sync.Once
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := editor.Client.Create(ctx, object(int(next.Add(1)-1))); err != nil {
					once.Do(func() { refusal = err })
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	Expect(ctx.Err()).To(Succeed())
	Expect(apierrors.IsForbidden(refusal)).To(BeTrue(), "%v", refusal)
	return int(count.Load()), refusal
}

// keepTrying has the editor create further locks and Jobs until it is told to stop.
func keepTrying(ctx context.Context, namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		tries := time.NewTicker(20 * time.Millisecond)
		defer tries.Stop()
		for number := 0; ; number++ {
			select {
			case <-ctx.Done():
				return
			case <-tries.C:
			}
			_ = editor.Client.Create(ctx, largeLock(namespace, fmt.Sprint("more-", number), 15<<10)) // Some pass while the cache is behind.
			_ = editor.Client.Create(ctx, largeJob(namespace, fmt.Sprint("more-", number)))
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// caller takes locks of a namespace through the façade.
type caller struct {
	locks     *facade.Client
	namespace string
	number    int
}

func newCaller(ctx context.Context, url, namespace string) *caller {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "caller-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: fixture.Worker,
			Containers:         []corev1.Container{{Name: "main", Image: "example.com/main"}},
		},
	}
	account := &corev1.ServiceAccount{}
	if err := environment.Admin.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: fixture.Worker}, account); err != nil {
		environment.AllowWorkers(ctx, namespace)
	}
	Expect(environment.Admin.Client.Create(ctx, pod)).To(Succeed())
	token := environment.WorkerToken(ctx, pod, audience)
	locks, err := facade.New(url, facade.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
	Expect(err).NotTo(HaveOccurred())
	return &caller{locks: locks, namespace: namespace}
}

func request(key string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: lock.NewOwner(), TTL: 10 * time.Minute}}
}

// acquire takes a lock and gives it back.
func (c *caller) acquire(ctx context.Context) error {
	c.number++
	wanted := request(fmt.Sprint("key-", c.number))
	if _, err := c.locks.Acquire(ctx, c.namespace, wanted); err != nil {
		return err
	}
	return c.locks.Release(ctx, c.namespace, wanted.FullKey(), lock.Proof{Owner: wanted.Owner})
}
