package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/test/support/golden"
)

// fakeCluster returns a cluster with these objects, as of now.
func fakeCluster(objects ...client.Object) client.WithWatch {
	for _, name := range []string{"payments", "shop", "empty"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	objects = append(objects, node("node-a", corev1.ConditionTrue))
	return fake.NewClientBuilder().WithScheme(session.Scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.Lock{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&v1alpha1.Lock{}, "spec.holder", indexed(func(l *v1alpha1.Lock) string { return l.Spec.Holder })).
		WithIndex(&corev1.Event{}, "involvedObject.kind", indexed(func(e *corev1.Event) string { return e.InvolvedObject.Kind })).
		WithIndex(&corev1.Event{}, "involvedObject.name", indexed(func(e *corev1.Event) string { return e.InvolvedObject.Name })).
		WithIndex(&corev1.Event{}, "involvedObject.uid", indexed(func(e *corev1.Event) string { return string(e.InvolvedObject.UID) })).
		WithIndex(&corev1.Event{}, "reason", indexed(func(e *corev1.Event) string { return e.Reason })).
		Build()
}

// node returns a node that has told 3 minutes ago whether it is ready. It has told nothing if that is empty.
func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ready != "" {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(now.Add(-3 * time.Minute))}}
	}
	return node
}

func indexed[T client.Object](field func(T) string) client.IndexerFunc {
	return func(object client.Object) []string {
		if typed, ok := object.(T); ok {
			return []string{field(typed)}
		}
		return nil
	}
}

// heldLock returns a lock that was acquired 12 minutes ago, renewed 3 seconds ago, and
// lives 30 seconds after that.
func heldLock(namespace, key string, change func(*v1alpha1.LockSpec)) *v1alpha1.Lock {
	stamp := func(before time.Duration) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(now.Add(-before))) }
	spec := v1alpha1.LockSpec{
		Key: key, Scope: v1alpha1.ScopeGlobal, Owner: "secret-of-" + key, Holder: "system:serviceaccount:payments:worker",
		TTL: &v1alpha1.Duration{Duration: 30 * time.Second}, FencingToken: new(int64(48211)),
		AcquireTime: stamp(12 * time.Minute), RenewTime: stamp(3 * time.Second), ExpireTime: stamp(-27 * time.Second),
	}
	if change != nil {
		change(&spec)
	}
	return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spec.FullKey().ObjectName()}, Spec: spec}
}

func waitingJob(name, key string, since time.Duration) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-since)),
			Finalizers: []string{v1alpha1.LockFinalizer},
			Labels:     map[string]string{v1alpha1.LockLabel: "true"}, Annotations: map[string]string{v1alpha1.LockKeyAnnotation: key},
		},
		Spec: batchv1.JobSpec{Suspend: new(true)},
	}
}

// payments are the objects of a namespace, and one lock of another.
func payments() []client.Object {
	return []client.Object{
		heldLock("payments", "billing:report", func(spec *v1alpha1.LockSpec) {
			spec.HolderRef = &v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job", Name: "nightly", UID: "nightly"}
			spec.Reason = "monthly close,\x1b[31m until the books are balanced and the auditors have gone home"
		}),
		heldLock("payments", "deploy", func(spec *v1alpha1.LockSpec) {
			spec.Holder, spec.TTL = "carol@example.com", nil
			spec.ExpireTime = new(v1alpha1.NewTimestamp(now.Add(72 * time.Hour)))
		}),
		heldLock("payments", "gone", func(spec *v1alpha1.LockSpec) { spec.ExpireTime = new(v1alpha1.NewTimestamp(now.Add(-time.Second))) }),
		heldLock("shop", "stock", nil),
		waitingJob("second", "billing:report", 3*time.Minute), waitingJob("first", "billing:report", 5*time.Minute),
	}
}

func TestList(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"namespace", []string{"-n", "payments"}},
		{"all", []string{"-A"}},
		{"wide", []string{"-n", "payments", "-o", "wide"}},
		{"exact_times", []string{"-n", "payments", "--show-times"}},
		{"by_holder", []string{"-A", "--holder", "NIGHTLY"}},
		{"expiring", []string{"-A", "--expiring", "1m", "--sort", "holder"}},
		{"sorted_by_waiters", []string{"-n", "payments", "--sort", "waiters", "--no-headers"}},
		{"none", []string{"-n", "empty"}},
		{"none_such", []string{"-A", "--holder", "dave"}},
		{"json", []string{"-n", "shop", "-o", "json"}},
		{"yaml", []string{"-n", "shop", "-o", "yaml"}},
		{"names", []string{"-n", "payments", "-o", "name"}},
		{"jsonpath", []string{"-n", "payments", "-o", `jsonpath={range .items[*]}{.spec.key}{"\n"}{end}`}},
		{"custom_columns", []string{"-n", "payments", "-o", "custom-columns=KEY:.spec.key,TOKEN:.spec.fencingToken,WHY:.spec.reason"}},
		{"bad_columns", []string{"-o", "custom-columns=KEY"}},
		{"bad_format", []string{"-o", "xml"}},
		{"bad_sort", []string{"--sort", "age"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, session.Options{Cluster: fakeCluster(payments()...)}, append([]string{"list"}, test.args...)...)
			golden.Check(t, "list/"+test.name+".txt", fmt.Sprintf("%s--- status %d\n", got, got.status))
		})
	}
}

// The object of a new grant has its fencing token as its resourceVersion, which scripts would have to know.
func TestScriptsGetTheFencingTokenOfANewLock(t *testing.T) {
	held := heldLock("payments", "new", func(spec *v1alpha1.LockSpec) { spec.FencingToken = nil })
	held.ResourceVersion = "4711"
	got := run(t, session.Options{Cluster: fakeCluster(held)}, "list", "-n", "payments", "-o", "jsonpath={.items[*].spec.fencingToken}")
	if got.out != "4711" {
		t.Errorf("got %s", got)
	}
}

func TestListTellsOfAHolderThatHasNotStarted(t *testing.T) {
	for name, args := range map[string][]string{"list": {"list"}, "top": {"top"}, "by_script": {"list", "-o", "custom-columns=HOLDER:.spec.holderRef.name"}} {
		got := run(t, session.Options{Cluster: fakeCluster(blockedJob()...)}, append(args, "-n", "payments")...)
		golden.Check(t, "list/not_started_"+name+".txt", got.String())
	}
}

func TestListRefusesANegativeTime(t *testing.T) {
	got := run(t, session.Options{Cluster: fakeCluster(payments()...)}, "list", "-n", "payments", "--expiring", "-1s")
	if got.status != int(failure.Usage) || !strings.Contains(got.errOut, "--expiring is -1s, and must not be negative") {
		t.Errorf("exit status %d: %s", got.status, got)
	}
}

func TestListOfAFacadeHasNoWatch(t *testing.T) {
	if got := run(t, session.Options{}, "list", "--server", "http://127.0.0.1:1", "-w"); got.status != int(failure.Usage) {
		t.Errorf("exit status %d: %s", got.status, got)
	}
}
