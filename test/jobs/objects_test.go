package jobs_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// newNamespace returns the name of a namespace of the spec's own. It is deleted after the spec, so that the operators of
// later specs do not look after its Jobs.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	name := environment.Namespace(ctx, "jobs-")
	DeferCleanup(func(ctx context.Context) {
		Expect(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return name
}

// change is a change of a Job before its creation.
type change func(*batchv1.Job)

// makeJob returns a Job under the lock of the key, whose pod runs until it is told to end.
func makeJob(namespace, name, key string, changes ...change) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: key},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					kubelet.Key: namespace + "/" + key, kubelet.RunFor: "forever",
				}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "work", Image: "work"}},
				},
			},
		},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}

// annotated gives the Job an annotation.
func annotated(name, value string) change {
	return func(job *batchv1.Job) { job.Annotations[name] = value }
}

// podAnnotated gives the pods of the Job an annotation.
func podAnnotated(name, value string) change {
	return func(job *batchv1.Job) { job.Spec.Template.Annotations[name] = value }
}

// runFor has the pods of the Job end after so long.
func runFor(text string) change { return podAnnotated(kubelet.RunFor, text) }

// create creates the Job.
func create(ctx context.Context, job *batchv1.Job) *batchv1.Job {
	GinkgoHelper()
	Expect(admin.Create(ctx, job)).To(Succeed())
	return job
}

// read returns the Job as it stands.
func read(ctx context.Context, job *batchv1.Job) *batchv1.Job {
	GinkgoHelper()
	var current batchv1.Job
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(job), &current)).To(Succeed())
	return &current
}

// isGone returns whether the Job exists no more.
func isGone(ctx context.Context, job *batchv1.Job) func() bool {
	return func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(job), &batchv1.Job{}))
	}
}

// has returns whether the condition is true of the Job.
func has(ctx context.Context, job *batchv1.Job, condition batchv1.JobConditionType) func() bool {
	return func() bool { return conditionOf(read(ctx, job), condition) != nil }
}

// conditionOf returns the condition if it is true, or nil.
func conditionOf(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, condition := range job.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// runningPods returns the pods of the Job that run.
func runningPods(ctx context.Context, job *batchv1.Job) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(admin.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})).To(Succeed())
	var found []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			found = append(found, pod)
		}
	}
	return found
}

// isRunning returns whether a pod of the Job runs.
func isRunning(ctx context.Context, job *batchv1.Job) func() bool {
	return func() bool { return len(runningPods(ctx, job)) > 0 }
}

// finish has the running pod of the Job end, and waits until the Job is complete.
func finish(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	Eventually(isRunning(ctx, job)).Should(BeTrue())
	for _, pod := range runningPods(ctx, job) {
		node.End(pod.UID)
	}
	Eventually(has(ctx, job, batchv1.JobComplete)).Should(BeTrue())
}

// lockOf returns the Lock of the key, or nil.
func lockOf(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	var held v1alpha1.Lock
	err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, &held)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return &held
}

// holderOf returns the UID of the object that holds the lock.
func holderOf(ctx context.Context, namespace, key string) func() types.UID {
	return func() types.UID {
		held := lockOf(ctx, namespace, key)
		if held == nil || held.Spec.HolderRef == nil {
			return ""
		}
		return held.Spec.HolderRef.UID
	}
}

// eventsOf returns what the operator told about the Job.
func eventsOf(ctx context.Context, job *batchv1.Job) func() string {
	return func() string {
		var events corev1.EventList
		Expect(admin.List(ctx, &events, client.InNamespace(job.Namespace))).To(Succeed())
		var lines []string
		for _, event := range events.Items {
			if event.InvolvedObject.UID == job.UID {
				lines = append(lines, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
			}
		}
		return strings.Join(lines, "\n")
	}
}

// startsOf returns the Jobs of a namespace in the order in which their pods were started.
func startsOf(namespace string) []string {
	var order []string
	for _, started := range node.Starts() {
		if isIn(started, namespace) {
			order = append(order, started.Job)
		}
	}
	return order
}

// expectNoViolations fails if pods of two Jobs of a key have run at a time, and reports the state after a failure.
func expectNoViolations(ctx context.Context) {
	GinkgoHelper()
	if CurrentSpecReport().Failed() {
		state, _ := kubectl.Run(ctx, "", "get", "jobs,pods,locks", "-A", "-o", "yaml")
		AddReportEntry("state", state, ReportEntryVisibilityFailureOrVerbose)
		log, _ := os.ReadFile(manager.Log())
		AddReportEntry("kube-controller-manager", string(log), ReportEntryVisibilityFailureOrVerbose)
	}
	Expect(node.Violations()).To(BeEmpty())
}

// lookAgain is how often the operator looks for pods that have yet to end.
const lookAgain = time.Second

// tokensOf returns the fencing tokens of the pods of a namespace, in the order of their
// starts.
func tokensOf(namespace string) []int64 {
	GinkgoHelper()
	var tokens []int64
	for _, started := range node.Starts() {
		if isIn(started, namespace) {
			tokens = append(tokens, number(started.Token))
		}
	}
	return tokens
}

func isIn(started kubelet.Started, namespace string) bool {
	return strings.HasPrefix(started.Key, namespace+"/")
}

// number returns the number of a fencing token; that of none is 0.
func number(token string) int64 {
	GinkgoHelper()
	if token == "" {
		return 0
	}
	parsed, err := strconv.ParseInt(token, 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return parsed
}

// waitingEvents returns the Events that tell Jobs what they wait for.
func waitingEvents(ctx context.Context, namespace string) []corev1.Event {
	GinkgoHelper()
	var events corev1.EventList
	Expect(admin.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.Reason != "LockWaiting" })
}

// createTwo creates a Job of a key, with the name of that, and one that follows it.
func createTwo(ctx context.Context, namespace, key string, changes ...change) (first, next *batchv1.Job) {
	GinkgoHelper()
	return create(ctx, makeJob(namespace, key, key, changes...)), create(ctx, makeJob(namespace, key+"-next", key))
}

// finishAll has the running pods of each Job end, and waits until the Jobs are complete.
func finishAll(ctx context.Context, jobs ...*batchv1.Job) {
	GinkgoHelper()
	for _, job := range jobs {
		Eventually(isRunning(ctx, job)).Should(BeTrue(), job.Name)
		for _, pod := range runningPods(ctx, job) {
			node.End(pod.UID)
		}
	}
	for _, job := range jobs {
		Eventually(has(ctx, job, batchv1.JobComplete)).Should(BeTrue(), job.Name)
	}
}

// startsOfKey returns the Jobs of a key in the order in which their pods were started.
func startsOfKey(namespace, key string) []string {
	var order []string
	for _, started := range node.Starts() {
		if started.Key == namespace+"/"+key {
			order = append(order, started.Job)
		}
	}
	return order
}

// tokensOfKey returns the fencing tokens of the pods of a key, in the order of their starts.
func tokensOfKey(namespace, key string) []int64 {
	GinkgoHelper()
	var tokens []int64
	for _, started := range node.Starts() {
		if started.Key == namespace+"/"+key {
			tokens = append(tokens, number(started.Token))
		}
	}
	return tokens
}

// lockedOrders returns what was started of each key of a namespace, in order, and checks
// that fencing tokens grow.
func lockedOrders(namespace string) map[string][]string {
	GinkgoHelper()
	orders, tokens := map[string][]string{}, map[string]string{}
	for _, started := range node.Starts() {
		if !isIn(started, namespace) {
			continue
		}
		orders[started.Key] = append(orders[started.Key], started.Job)
		Expect(number(started.Token)).To(BeNumerically(">", number(tokens[started.Key])), "the token of %s", started.Job)
		tokens[started.Key] = started.Token
	}
	for key, order := range orders {
		Expect(order).To(HaveExactElements(sorted(order)), key)
	}
	return orders
}

func sorted(names []string) []any {
	var expected []any
	for _, name := range slices.Sorted(slices.Values(names)) {
		expected = append(expected, name)
	}
	return expected
}
