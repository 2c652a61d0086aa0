package lockedjobs

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

// NewNamespace returns the name of a namespace of the spec's own. It is deleted after the spec, so that the operators of
// later specs do not look after its Jobs.
func NewNamespace(ctx context.Context) string {
	GinkgoHelper()
	name := Environment.Namespace(ctx, "jobs-")
	DeferCleanup(func(ctx context.Context) {
		Expect(Admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return name
}

// Change is a change of a Job before its creation.
type Change func(*batchv1.Job)

// MakeJob returns a Job under the lock of the key, whose pod runs until it is told to end.
func MakeJob(namespace, name, key string, changes ...Change) *batchv1.Job {
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

// Annotated gives the Job an annotation.
func Annotated(name, value string) Change {
	return func(job *batchv1.Job) { job.Annotations[name] = value }
}

// PodAnnotated gives the pods of the Job an annotation.
func PodAnnotated(name, value string) Change {
	return func(job *batchv1.Job) { job.Spec.Template.Annotations[name] = value }
}

// RunFor has the pods of the Job end after so long.
func RunFor(text string) Change { return PodAnnotated(kubelet.RunFor, text) }

// Create creates the Job.
func Create(ctx context.Context, job *batchv1.Job) *batchv1.Job {
	GinkgoHelper()
	Expect(Admin.Create(ctx, job)).To(Succeed())
	return job
}

// Read returns the Job as it stands.
func Read(ctx context.Context, job *batchv1.Job) *batchv1.Job {
	GinkgoHelper()
	var current batchv1.Job
	Expect(Admin.Get(ctx, client.ObjectKeyFromObject(job), &current)).To(Succeed())
	return &current
}

// IsGone returns whether the Job exists no more.
func IsGone(ctx context.Context, job *batchv1.Job) func() bool {
	return func() bool {
		return apierrors.IsNotFound(Admin.Get(ctx, client.ObjectKeyFromObject(job), &batchv1.Job{}))
	}
}

// Has returns whether the condition is true of the Job.
func Has(ctx context.Context, job *batchv1.Job, condition batchv1.JobConditionType) func() bool {
	return func() bool { return ConditionOf(Read(ctx, job), condition) != nil }
}

// ConditionOf returns the condition if it is true, or nil.
func ConditionOf(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, condition := range job.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// RunningPods returns the pods of the Job that run.
func RunningPods(ctx context.Context, job *batchv1.Job) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(Admin.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})).To(Succeed())
	var found []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			found = append(found, pod)
		}
	}
	return found
}

// IsRunning returns whether a pod of the Job runs.
func IsRunning(ctx context.Context, job *batchv1.Job) func() bool {
	return func() bool { return len(RunningPods(ctx, job)) > 0 }
}

// Finish has the running pod of the Job end, and waits until the Job is complete.
func Finish(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	Eventually(IsRunning(ctx, job)).Should(BeTrue())
	for _, pod := range RunningPods(ctx, job) {
		Node.End(pod.UID)
	}
	Eventually(Has(ctx, job, batchv1.JobComplete)).Should(BeTrue())
}

// LockOf returns the Lock of the key, or nil.
func LockOf(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	var held v1alpha1.Lock
	err := Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, &held)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return &held
}

// HolderOf returns the UID of the object that holds the lock.
func HolderOf(ctx context.Context, namespace, key string) func() types.UID {
	return func() types.UID {
		held := LockOf(ctx, namespace, key)
		if held == nil || held.Spec.HolderRef == nil {
			return ""
		}
		return held.Spec.HolderRef.UID
	}
}

// EventsOf returns what the operator told about the Job.
func EventsOf(ctx context.Context, job *batchv1.Job) func() string {
	return func() string {
		var events corev1.EventList
		Expect(Admin.List(ctx, &events, client.InNamespace(job.Namespace))).To(Succeed())
		var lines []string
		for _, event := range events.Items {
			if event.InvolvedObject.UID == job.UID {
				lines = append(lines, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
			}
		}
		return strings.Join(lines, "\n")
	}
}

// StartsOf returns the Jobs of a namespace in the order in which their pods were started.
func StartsOf(namespace string) []string {
	var order []string
	for _, started := range Node.Starts() {
		if isIn(started, namespace) {
			order = append(order, started.Job)
		}
	}
	return order
}

// ExpectNoViolations fails if pods of two Jobs of a key have run at a time, and reports the state after a failure.
func ExpectNoViolations(ctx context.Context) {
	GinkgoHelper()
	if CurrentSpecReport().Failed() {
		state, _ := Kubectl.Run(ctx, "", "get", "jobs,pods,locks", "-A", "-o", "yaml")
		AddReportEntry("state", state, ReportEntryVisibilityFailureOrVerbose)
		log, _ := os.ReadFile(Manager.Log())
		AddReportEntry("kube-controller-manager", string(log), ReportEntryVisibilityFailureOrVerbose)
	}
	Expect(Node.Violations()).To(BeEmpty())
}

// LookAgain is how often the operator looks for pods that have yet to end.
const LookAgain = time.Second

// InNamespace is an option of lists.
func InNamespace(namespace string) client.ListOption { return client.InNamespace(namespace) }

// TokensOf returns the fencing tokens of the pods of a namespace, in the order of their
// starts.
func TokensOf(namespace string) []int64 {
	GinkgoHelper()
	var tokens []int64
	for _, started := range Node.Starts() {
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

// WaitingEvents returns the Events that tell Jobs what they wait for.
func WaitingEvents(ctx context.Context, namespace string) []corev1.Event {
	GinkgoHelper()
	var events corev1.EventList
	Expect(Admin.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.Reason != "LockWaiting" })
}

// CreateTwo creates a Job of a key, with the name of that, and one that follows it.
func CreateTwo(ctx context.Context, namespace, key string, changes ...Change) (first, next *batchv1.Job) {
	GinkgoHelper()
	return Create(ctx, MakeJob(namespace, key, key, changes...)), Create(ctx, MakeJob(namespace, key+"-next", key))
}

// FinishAll has the running pods of each Job end, and waits until the Jobs are complete.
func FinishAll(ctx context.Context, jobs ...*batchv1.Job) {
	GinkgoHelper()
	for _, job := range jobs {
		Eventually(IsRunning(ctx, job)).Should(BeTrue(), job.Name)
		for _, pod := range RunningPods(ctx, job) {
			Node.End(pod.UID)
		}
	}
	for _, job := range jobs {
		Eventually(Has(ctx, job, batchv1.JobComplete)).Should(BeTrue(), job.Name)
	}
}

// StartsOfKey returns the Jobs of a key in the order in which their pods were started.
func StartsOfKey(namespace, key string) []string {
	var order []string
	for _, started := range Node.Starts() {
		if started.Key == namespace+"/"+key {
			order = append(order, started.Job)
		}
	}
	return order
}

// TokensOfKey returns the fencing tokens of the pods of a key, in the order of their starts.
func TokensOfKey(namespace, key string) []int64 {
	GinkgoHelper()
	var tokens []int64
	for _, started := range Node.Starts() {
		if started.Key == namespace+"/"+key {
			tokens = append(tokens, number(started.Token))
		}
	}
	return tokens
}

// LockedOrders returns what was started of each key of a namespace, in order, and checks
// that fencing tokens grow.
func LockedOrders(namespace string) map[string][]string {
	GinkgoHelper()
	orders, tokens := map[string][]string{}, map[string]string{}
	for _, started := range Node.Starts() {
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
