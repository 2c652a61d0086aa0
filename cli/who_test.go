package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/tokenfile"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/golden"
)

// as answers the questions of a user about itself.
func as(user string, may func(verb string) bool, cluster client.WithWatch) client.WithWatch {
	return interceptor.NewClient(cluster, interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			switch review := object.(type) {
			case *authenticationv1.SelfSubjectReview:
				review.Status.UserInfo.Username = user
				return nil
			case *authorizationv1.SelfSubjectAccessReview:
				review.Status.Allowed = may(review.Spec.ResourceAttributes.Verb)
				return nil
			default:
				return next.Create(ctx, object, options...)
			}
		},
	})
}

func everything(string) bool { return true }

func withoutForce(verb string) bool { return verb != "force-release" }

func nothing(string) bool { return false }

// behindBilling is what holds billing:report.
func behindBilling() []client.Object {
	return []client.Object{
		&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "nightly", UID: "nightly"},
			Status:     batchv1.JobStatus{Active: 1, Failed: 1},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "nightly-x7k2p", Labels: map[string]string{batchv1.ControllerUidLabel: "nightly"}},
			Spec:       corev1.PodSpec{NodeName: "node-a"},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(now.Add(-11 * time.Minute))),
				ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 2}},
			},
		},
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "payments", Name: "e"},
			InvolvedObject: corev1.ObjectReference{Kind: "Lock", Name: "billing--report"},
			Reason:         "ForceReleased", Message: "by \"carol@example.com\": hangs", LastTimestamp: metav1.NewTime(now.Add(-20 * time.Minute)),
		},
	}
}

// holdingJob is the Job under the lock billing:report, which has just got it: its Pod has not begun.
func holdingJob() []client.Object {
	job := waitingJob("nightly", "billing:report", time.Hour)
	job.Spec.Suspend, job.Status.Active = new(false), 1
	return []client.Object{job, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: "nightly-x7k2p", CreationTimestamp: metav1.NewTime(now.Add(-7 * time.Minute)),
			Labels: map[string]string{batchv1.ControllerUidLabel: "nightly"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

// blockedJob is the Job next, which has got the lock billing:report while the Pod of nightly does not end.
func blockedJob() []client.Object {
	leaving := waitingJob("nightly", "billing:report", time.Hour)
	leaving.Annotations[v1alpha1.LockStoppingAnnotation] = "true"
	return []client.Object{
		heldLock("payments", "billing:report", func(spec *v1alpha1.LockSpec) {
			spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "month-end", UID: "month-end"}
		}),
		waitingJob("month-end", "billing:report", 20*time.Minute), leaving, terminatingPod("nightly"),
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "nightly-ended", Labels: map[string]string{batchv1.ControllerUidLabel: "nightly"}},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed},
		},
	}
}

// terminatingPod was deleted 12 minutes ago, and has not ended.
func terminatingPod(job string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: job + "-x7k2p", Labels: map[string]string{batchv1.ControllerUidLabel: job}, Finalizers: []string{"batch.kubernetes.io/job-tracking"},
			DeletionTimestamp: new(metav1.NewTime(now.Add(-12*time.Minute + 30*time.Second))), DeletionGracePeriodSeconds: new(int64(30)),
		},
		Spec:   corev1.PodSpec{NodeName: "node-a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// stoppingHolder is the Job nightly, which was suspended by a user, and keeps its lock until its Pod has ended.
func stoppingHolder() []client.Object {
	job := waitingJob("nightly", "billing:report", time.Hour)
	job.Annotations[v1alpha1.LockStoppingAnnotation] = "true"
	return []client.Object{job, terminatingPod("nightly")}
}

// withoutPods is the Job nightly, which was started under its lock an hour ago, and the events of two Jobs of that name.
func withoutPods(changes ...func(*batchv1.Job)) []client.Object {
	job := waitingJob("nightly", "billing:report", time.Hour)
	job.Spec.Suspend = new(false)
	for _, change := range changes {
		change(job)
	}
	objects := []client.Object{job}
	for index, event := range []struct {
		uid             types.UID
		reason, message string
		ago             time.Duration
	}{
		{"nightly", "FailedCreate", "Error creating: pods \"nightly-\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5", 3 * time.Minute},
		{"nightly", "FailedCreate", "Error creating: pods \"nightly-\" is forbidden: error looking up service account payments/nightly", 9 * time.Minute},
		{"nightly", "LockAcquired", "Holds lock:billing:report and is started", time.Minute},
		{"former", "FailedCreate", "of another Job of that name", time.Minute},
	} {
		objects = append(objects, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "payments", Name: fmt.Sprint("nightly.", index)},
			InvolvedObject: corev1.ObjectReference{Kind: "Job", Name: "nightly", UID: event.uid},
			Reason:         event.reason, Message: event.message, LastTimestamp: metav1.NewTime(now.Add(-event.ago)),
		})
	}
	return objects
}

// refusedJob was refused its lock so long ago, and is tried again five minutes after.
func refusedJob(name string, since, ago time.Duration) *batchv1.Job {
	job := waitingJob(name, "billing:report", since)
	at := now.Add(-ago)
	job.Annotations[v1alpha1.LockWaitingAnnotation] = jobs.Refusal{
		At: at, Until: at.Add(5 * time.Minute), Why: `the cluster refuses the lock: locks.forrst.dev "billing--report" is forbidden: exceeded quota: locks`,
	}.String()
	return job
}

// notRunJob is a Job with the policy fail that was refused its lock; the Job controller has failed it for the same reason.
func notRunJob() *batchv1.Job {
	job := waitingJob("nightly", "billing:report", time.Hour)
	job.Finalizers = nil
	jobs.AcquireRefused.Decide(job, "The Job was not run, since the cluster refuses it the lock: exceeded quota: locks", metav1.NewTime(now))
	failed := job.Status.Conditions[0]
	failed.Type = batchv1.JobFailed
	job.Status.Conditions = append(job.Status.Conditions, failed)
	return job
}

func pausedJob() *batchv1.Job {
	job := waitingJob("month-end", "billing:report", time.Hour)
	job.Annotations[v1alpha1.LockPausedAnnotation] = "true"
	return job
}

// onNode moves the Pods to node-7, and adds objects.
func onNode(objects []client.Object, more ...client.Object) []client.Object {
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.Spec.NodeName = "node-7"
		}
	}
	return append(objects, more...)
}

// justDeleted has the Pods that were deleted be so since a second.
func justDeleted(objects []client.Object) []client.Object {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			object.SetDeletionTimestamp(new(metav1.NewTime(now.Add(29 * time.Second))))
		}
	}
	return objects
}

// podHolder is a Pod and its lock.
func podHolder() []client.Object {
	return []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "worker-0", UID: "worker-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		heldLock("payments", "orders", func(spec *v1alpha1.LockSpec) {
			spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "worker-0"}
		}),
	}
}

const auditLog = `a line of the log
{"schema":"forrst.dev/audit/v1","time":"2026-11-23T02:30:00.000000Z","event":"Granted","via":"facade","actor":"system:serviceaccount:payments:worker","namespace":"payments","lock":"billing--report","key":"billing:report","holder":"system:serviceaccount:payments:worker","fencingToken":48100}
{"schema":"forrst.dev/audit/v1","time":"2026-11-23T02:31:00.000000Z","event":"Renewed","via":"facade","namespace":"payments","lock":"billing--report","key":"billing:report"}
{"schema":"forrst.dev/audit/v1","time":"2026-11-23T02:32:00.000000Z","event":"Granted","via":"facade","namespace":"shop","lock":"billing--report","key":"billing:report"}
{"schema":"forrst.dev/audit/v1","time":"2026-11-23T02:40:00.000000Z","event":"Expired","reason":"Reaped","via":"admission","actor":"system:serviceaccount:payments:worker","namespace":"payments","lock":"billing--report","key":"billing:report","holder":"system:serviceaccount:payments:worker","admitted":true}
{"schema":"forrst.dev/audit/v1","time":"2026-11-23T02:41:00.000000Z","event":"ForceReleased","reason":"ByForce","via":"admission","namespace":"payments","lock":"billing--report","key":"billing:report","dryRun":true}
`

func TestWho(t *testing.T) {
	path := filepath.Join(t.TempDir(), "operator.log")
	if err := os.WriteFile(path, []byte(auditLog), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, user string
		may        func(string) bool
		objects    []client.Object
		args       []string
	}{
		{"held_by_a_job", "carol@example.com", withoutForce, append(payments(), behindBilling()...), []string{"billing:report", "-n", "payments", "--audit", path}},
		{"may_force", "carol@example.com", everything, append(payments(), behindBilling()...), []string{"billing:report", "-n", "payments"}},
		{"on_a_node_that_does_not_report", "carol@example.com", everything, append(payments(), onNode(behindBilling(), node("node-7", corev1.ConditionUnknown))...), []string{"billing:report", "-n", "payments"}},
		{"on_a_node_that_is_not_ready", "carol@example.com", everything, append(payments(), onNode(behindBilling(), node("node-7", corev1.ConditionFalse))...), []string{"billing:report", "-n", "payments"}},
		{"on_a_node_without_a_state", "carol@example.com", everything, append(payments(), onNode(behindBilling(), node("node-7", ""))...), []string{"billing:report", "-n", "payments"}},
		{"on_a_node_that_is_gone", "carol@example.com", everything, append(payments(), onNode(behindBilling())...), []string{"billing:report", "-n", "payments"}},
		{"whose_job_waits_for_a_dead_node", "carol@example.com", everything, justDeleted(onNode(blockedJob(), node("node-7", corev1.ConditionUnknown))), []string{"billing:report", "-n", "payments"}},
		{"whose_job_is_gone", "carol@example.com", everything, payments(), []string{"billing:report", "-n", "payments"}},
		{"whose_job_was_replaced", "carol@example.com", everything, append(payments(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "nightly", UID: "another"}}), []string{"billing:report", "-n", "payments"}},
		{"mine", "carol@example.com", everything, payments(), []string{"deploy", "-n", "payments"}},
		{"held_by_my_connection", "carol@example.com", everything, byConnections(payments()), []string{"deploy", "-n", "payments"}},
		{"held_by_a_connection", "alice@example.com", everything, byConnections(payments()), []string{"deploy", "-n", "payments"}},
		{"free", "carol@example.com", everything, payments(), []string{"other key", "-n", "payments"}},
		{"free_and_no_rights", "carol@example.com", nothing, payments(), []string{"other", "-n", "payments"}},
		{"expired", "carol@example.com", everything, payments(), []string{"gone", "-n", "payments"}},
		{"a_job_that_waits", "carol@example.com", everything, append(payments(), behindBilling()...), []string{"job/second", "-n", "payments"}},
		{"a_job_that_holds", "carol@example.com", everything, append(payments(), holdingJob()...), []string{"Job/nightly", "-n", "payments"}},
		{"the_name_of_a_job", "carol@example.com", everything, payments(), []string{"first", "-n", "payments"}},
		{"a_pod_of_a_job", "carol@example.com", everything, append(payments(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: "second-abcde", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "second", UID: "second", Controller: new(true)}},
		}}), []string{"pod/second-abcde", "-n", "payments"}},
		{"a_pod_that_holds", "carol@example.com", everything, append(payments(), podHolder()...), []string{"pod/worker-0", "-n", "payments"}},
		{"whose_pod_is_pending", "carol@example.com", everything, append(payments(), holdingJob()...), []string{"billing:report", "-n", "payments"}},
		{"whose_job_waits_for_pods", "carol@example.com", everything, blockedJob(), []string{"billing:report", "-n", "payments"}},
		{"exact_times", "carol@example.com", everything, append(blockedJob(), waitingJob("second", "billing:report", time.Minute)), []string{"billing:report", "-n", "payments", "--show-times"}},
		{"a_job_that_stops", "carol@example.com", everything, blockedJob(), []string{"job/nightly", "-n", "payments"}},
		{"free_while_a_job_stops", "carol@example.com", everything, blockedJob()[1:], []string{"billing:report", "-n", "payments"}},
		{"whose_job_is_about_to_start", "carol@example.com", everything, blockedJob()[:2], []string{"billing:report", "-n", "payments"}},
		{"whose_job_stops", "carol@example.com", everything, append(payments(), stoppingHolder()...), []string{"billing:report", "-n", "payments"}},
		{"whose_job_has_no_pods", "carol@example.com", everything, append(payments(), withoutPods()...), []string{"billing:report", "-n", "payments"}},
		{"whose_job_has_no_parallelism", "carol@example.com", withoutForce, append(payments(), withoutPods(func(job *batchv1.Job) {
			job.Spec.Parallelism = new(int32(0))
		})[:1]...), []string{"job/nightly", "-n", "payments"}},
		{"whose_pods_have_ended", "carol@example.com", everything, append(payments(), withoutPods(func(job *batchv1.Job) { job.Status.Failed = 1 })[0], &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "nightly-x7k2p", Labels: map[string]string{batchv1.ControllerUidLabel: "nightly"}},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed},
		}), []string{"billing:report", "-n", "payments"}},
		{"whose_suspended_job_is_under_no_lock", "carol@example.com", everything, append(payments(), withoutPods(func(job *batchv1.Job) {
			job.Labels, job.Spec.Suspend = nil, new(true)
		})[0]), []string{"billing:report", "-n", "payments"}},
		{"held_for_an_object", "carol@example.com", everything, []client.Object{
			heldLock("payments", "billing:report", func(spec *v1alpha1.LockSpec) {
				spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "v1", Kind: "ConfigMap", Name: "release", UID: "release"}
			}), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "release", UID: "release"}},
		}, []string{"billing:report", "-n", "payments"}},
		{"a_job_that_was_refused", "carol@example.com", everything, []client.Object{refusedJob("nightly", time.Hour, 3*time.Minute)}, []string{"job/nightly", "-n", "payments"}},
		{"free_while_jobs_are_refused", "carol@example.com", everything, []client.Object{
			refusedJob("nightly", time.Hour, 3*time.Minute), refusedJob("month-end", 2*time.Hour, 7*time.Minute),
		}, []string{"billing:report", "-n", "payments"}},
		{"free_while_a_job_is_not_refused", "carol@example.com", everything, []client.Object{
			refusedJob("nightly", time.Hour, 3*time.Minute), waitingJob("second", "billing:report", time.Minute),
		}, []string{"billing:report", "-n", "payments"}},
		{"a_job_that_was_not_run", "carol@example.com", everything, []client.Object{notRunJob()}, []string{"job/nightly", "-n", "payments"}},
		{"a_job_that_is_paused", "carol@example.com", nothing, []client.Object{pausedJob()}, []string{"job/month-end", "-n", "payments"}},
		{"a_job_that_is_paused_while_another_holds", "carol@example.com", everything, append(payments(), append(holdingJob(), pausedJob())...), []string{"job/month-end", "-n", "payments"}},
		{"my_freeze", "system:serviceaccount:payments:worker", everything, []client.Object{heldLock("payments", "freeze", func(spec *v1alpha1.LockSpec) {
			spec.Guards = []v1alpha1.Guard{{Resource: "services"}}
		})}, []string{"freeze", "-n", "payments"}},
		{"free_and_held_elsewhere", "carol@example.com", everything, payments(), []string{"stock", "-n", "payments"}},
		{"guards", "carol@example.com", nothing, []client.Object{heldLock("payments", "freeze", func(spec *v1alpha1.LockSpec) {
			spec.Guards = []v1alpha1.Guard{
				{Group: "apps", Resource: "deployments", Name: "billing"}, {Resource: "configmaps", Selector: &metav1.LabelSelector{}},
				{Resource: "secrets", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "billing"}}},
			}
		})}, []string{"freeze", "-n", "payments"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, session.Options{Cluster: as(test.user, test.may, fakeCluster(test.objects...))}, append([]string{"who"}, test.args...)...)
			golden.Check(t, "who/"+test.name+".txt", got.String())
			if got.status != 0 {
				t.Errorf("exit status %d", got.status)
			}
		})
	}
}

// Only acquire leaves an owner token that release finds. Other locks are ended in another way.
func TestProposesReleaseOnlyWithTheOwnerToken(t *testing.T) {
	folder := t.TempDir()
	options := session.Options{
		Cluster: as("carol@example.com", everything, fakeCluster(payments()...)),
		Getenv:  func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": folder}[name] },
	}
	refused := run(t, options, "release", "deploy", "-n", "payments")
	golden.Check(t, "grant/no_token_of_my_lock.txt", strings.ReplaceAll(refused.String(), folder, "/folder"))
	if got := run(t, options, "release", "billing:report", "-n", "payments"); !strings.Contains(got.errOut, "take the lock first") {
		t.Errorf("the lock of another holder: %s", got)
	}

	place, err := tokenfile.Default(options.Getenv, "", "payments", "lock:deploy")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ owner, want string }{
		{"secret-of-another-grant", "kubectl lock free deploy -n payments"}, {"secret-of-deploy", "kubectl lock release deploy -n payments"},
	} {
		draft, err := place.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if err := draft.Keep(tokenfile.Proof{Owner: test.owner}); err != nil {
			t.Fatal(err)
		}
		if got := run(t, options, "who", "deploy", "-n", "payments"); !strings.Contains(got.out, test.want) {
			t.Errorf("with %s, %q is missing in:\n%s", test.owner, test.want, got)
		}
	}
}

// A command of kubectl itself needs the flags that lead to the cluster as much as one of kubectl lock; a façade is none of kubectl's.

// byConnections are the objects, of which connections hold the locks.
func byConnections(objects []client.Object) []client.Object {
	for _, each := range objects {
		if held, ok := each.(*v1alpha1.Lock); ok {
			held.Annotations = map[string]string{v1alpha1.ConnectionAnnotation: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
		}
	}
	return objects
}

func TestCommandsOfKubectlHaveTheFlags(t *testing.T) {
	flags := []string{"--context", "staging", "--as", "carol", "--as-group", "ops", "--cluster", "b", "--user", "it's me"}
	const want = ` --context staging --cluster b --user 'it'\''s me' --as carol --as-group ops`
	for _, test := range []struct {
		name    string
		objects []client.Object
		args    []string
		least   int
	}{
		{"a dead node", justDeleted(onNode(blockedJob(), node("node-7", corev1.ConditionUnknown))), []string{"who", "billing:report", "-n", "payments"}, 4},
		{"a paused Job", []client.Object{pausedJob()}, []string{"who", "job/month-end", "-n", "payments"}, 2},
		{"no namespace", []client.Object{}, []string{"who", "k", "-n", "missing"}, 1},
	} {
		got := run(t, session.Options{Cluster: as("carol@example.com", everything, fakeCluster(test.objects...))}, append(test.args, flags...)...)
		commands := 0
		for line := range strings.Lines(got.out + got.errOut) {
			if _, command, isOne := strings.Cut(line, "kubectl "); isOne && !strings.HasPrefix(command, "lock ") {
				commands++
				if !strings.Contains(line, want) {
					t.Errorf("%s: without the flags: %s", test.name, line)
				}
			}
		}
		if commands < test.least {
			t.Errorf("%s: %d commands of kubectl in\n%s", test.name, commands, got)
		}
	}

	frozen := heldLock("payments", "freeze", func(spec *v1alpha1.LockSpec) { spec.Guards = []v1alpha1.Guard{{Resource: "services"}} })
	thaw := run(t, session.Options{Cluster: as("carol@example.com", everything, fakeCluster(frozen))}, append([]string{"thaw", "payments"}, flags...)...)
	if !strings.Contains(thaw.errOut, "kubectl lock free freeze -n payments --reason ..."+want) {
		t.Error(thaw)
	}

	backend := locktest.New()
	reference := &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "worker-0"}
	if _, err := backend.Acquire(t.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: "k", Owner: "o", TTL: time.Hour, HolderRef: reference}}); err != nil {
		t.Fatal(err)
	}
	got := run(t, session.Options{Locks: backend}, "who", "k", "-n", "payments", "--server", "https://facade", "--certificate-authority", "ca.crt")
	if !strings.Contains(got.out, "kubectl describe pod worker-0 -n payments\n") {
		t.Error(got)
	}
}
