package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// newNamespace returns the name of a namespace of the spec's own.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return environment.Namespace(ctx, "jobs-")
}

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

func annotated(name, value string) change {
	return func(job *batchv1.Job) { job.Annotations[name] = value }
}

func podAnnotated(name, value string) change {
	return func(job *batchv1.Job) { job.Spec.Template.Annotations[name] = value }
}

func runFor(text string) change { return podAnnotated(kubelet.RunFor, text) }

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

func has(ctx context.Context, job *batchv1.Job, condition batchv1.JobConditionType) func() bool {
	return func() bool { return conditionOf(read(ctx, job), condition) != nil }
}

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

func inNamespace(namespace string) client.ListOption { return client.InNamespace(namespace) }

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }

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

func waitingEvents(ctx context.Context, namespace string) []corev1.Event {
	GinkgoHelper()
	var events corev1.EventList
	Expect(admin.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.Reason != "LockWaiting" })
}

// waitingNote returns what the Job is told in its annotation while it waits.
func waitingNote(ctx context.Context, job *batchv1.Job) func() string {
	return func() string { return read(ctx, job).Annotations[v1alpha1.LockWaitingAnnotation] }
}

// annotatedJobs returns the Jobs that are told in their annotations for whom they wait.
func annotatedJobs(ctx context.Context, namespace string) []batchv1.Job {
	GinkgoHelper()
	var list batchv1.JobList
	Expect(admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return job.Annotations[v1alpha1.LockWaitingAnnotation] == "" })
}

// counter has the requests of an operator.
type counter struct {
	mu   sync.Mutex
	made []string
}

// about returns the requests so far, as "GET /apis/…", for objects of the namespace. Those that keep an operator
// going, such as reads of the time, are for others.
func (c *counter) about(namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.made), func(request string) bool { return !strings.Contains(request, "/namespaces/"+namespace+"/") })
}

func (c *counter) count(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, c} })
}

type counting struct {
	next    http.RoundTripper
	counter *counter
}

// RoundTrip implements [http.RoundTripper].
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.counter.mu.Lock()
	c.counter.made = append(c.counter.made, request.Method+" "+request.URL.Path)
	c.counter.mu.Unlock()
	return c.next.RoundTrip(request)
}
