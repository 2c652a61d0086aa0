//go:build !race

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/rest"
	facadeserver "forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/tracing/otlp"
	"forrst.dev/lock-operator/webhook/server"
)

const (
	// baseBytes is what a process without locks and callers takes.
	baseBytes = 64 << 20
	// callerBytes is what a blocked caller takes, with its connection: 33 KiB by docs/performance.md, and a tenth more. One
	// whose call runs takes no more, but for its body.
	callerBytes = 36 << 10
	// entryBytes is what a cached object takes in the maps, indexes and queues of a process.
	entryBytes = 1 << 10
	// listBytes is what the answers take to lists of 2,000 locks together, as text and decoded.
	listBytes = 2000 * rules.MaxBytes * 3
	// usualLocks are held in other namespaces than the one that is filled up.
	usualLocks = 20_000
	// spare is the part of GOMEMLIMIT that the budget leaves to garbage.
	spare = 0.1
)

// TestTheDefaultsFitTheMemoryLimit holds the flags against the memory limits of the manifests: a
// namespace is filled up with the most expensive locks and Jobs that are let through, and every limit of
// the façade is reached. See docs/operations.md, Memory.
func TestTheDefaultsFitTheMemoryLimit(t *testing.T) {
	usualLock, largestLock := measured(t, usualShapes()), measured(t, largestLocks(t))
	largestJob := measured(t, largestJobs(t))
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, deployment := range deployments(t) {
		container := deployment.Spec.Template.Spec.Containers[0]
		settings, err := parse(container.Args...)
		if err != nil {
			t.Fatal(err)
		}
		var total float64
		add := func(what string, count int, each float64) {
			total += float64(count) * each
			t.Logf("%-10s %-38s %7d × %9.0f = %6.0f MiB", name, what, count, each, float64(count)*each/(1<<20))
		}
		add("the process", 1, baseBytes)
		add("usual locks of other namespaces", usualLocks, usualLock+entryBytes)
		add("the largest locks of one namespace", settings.maxLocks, largestLock+entryBytes)
		if settings.runs(facadeComponent) {
			calls := settings.facadeServer.calls
			add("callers with a call in flight", calls.InFlight, callerBytes)
			add("requests without an authenticated caller", facadeserver.MaxUnauthenticatedRequests(settings.facadeServer.maxConnections), facadeserver.UnauthenticatedRequestBytes)
			add("bodies", 1, float64(calls.BodyBytes))
			add("lists", 1, listBytes)
			add("viewers of feeds that do not read", limits.MaxStreams, rest.MaxViewerBytes)
			add("what feeds keep for viewers that are behind", 1, rest.MaxKeptBytes)
		}
		if settings.runs(controllerComponent) {
			add("the largest Jobs of one namespace", settings.maxJobs, largestJob+entryBytes)
		}
		if settings.runs(webhookComponent) {
			add("names of Jobs of one namespace", settings.maxJobs, entryBytes)
			add("admission reviews", 1, float64(settings.webhook.maxMemory))
			add("admission reviews that arrive or wait", 1, float64(server.MemoryBeside(settings.webhook.maxConnections, settings.webhook.maxMemory)))
		}
		fits := func(limit float64) {
			t.Helper()
			room := limit * memoryShare * (1 - spare)
			t.Logf("%-10s %.0f MiB of %.0f, which %.0f MiB leave", name, total/(1<<20), room/(1<<20), limit/(1<<20))
			if total > room {
				t.Errorf("%s may need %.0f MiB, and a memory limit of %.0f MiB leaves %.0f", name, total/(1<<20), limit/(1<<20), room/(1<<20))
			}
		}
		fits(container.Resources.Limits.Memory().AsApproximateFloat64())

		// With traces.
		add("spans that wait to be sent", otlp.DefaultQueue+otlp.DefaultBatch, otlp.SpanBytes)
		add("spans that are being sent", otlp.DefaultBatch, otlp.EncodedBytes)
		if settings.runs(facadeComponent) {
			inFlight := settings.facadeServer.calls.InFlight
			add("spans of calls in flight", inFlight, otlp.CallBytes)
			add("spans of waits, of all replicas at one home", int(*deployment.Spec.Replicas)*inFlight, otlp.WaitBytes)
		}
		if settings.runs(controllerComponent) {
			add("spans of waiting Jobs of one namespace", settings.maxJobs, otlp.JobBytes)
		}
		limit := resource.MustParse(tracedLimits[name])
		fits(limit.AsApproximateFloat64())
		if !strings.Contains(string(page), "`"+tracedLimits[name]+"`") {
			t.Errorf("docs/operations.md does not name %s, the limit of %s with traces", tracedLimits[name], name)
		}
	}
}

// tracedLimits are the memory limits with traces that docs/operations.md names.
var tracedLimits = map[string]string{
	"lock-operator-facade": "2560Mi", "lock-operator-controllers": "576Mi", "lock-operator-webhook": "1Gi",
}

// deployments returns the Deployments of config/manager by name.
func deployments(t *testing.T) map[string]appsv1.Deployment {
	t.Helper()
	files, err := filepath.Glob("../../config/manager/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]appsv1.Deployment{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var deployment appsv1.Deployment
			if err := yaml.Unmarshal(document, &deployment); err != nil {
				t.Fatal(err)
			}
			if deployment.Kind == "Deployment" {
				found[deployment.Name] = deployment
			}
		}
	}
	if len(found) == 0 {
		t.Fatal("there is no Deployment in config/manager")
	}
	return found
}

// shape is an object as the API server sends it, and how a cache keeps it.
type shape struct {
	name string
	text []byte
	keep func(text []byte) (any, error)
}

// measured returns the bytes that the most expensive of the objects takes in a cache.
func measured(t *testing.T, shapes []shape) (most float64) {
	t.Helper()
	const copies = 200
	for _, each := range shapes {
		kept := make([]any, copies)
		before := heapInUse()
		for i := range kept {
			var err error
			if kept[i], err = each.keep(each.text); err != nil {
				t.Fatal(err)
			}
		}
		bytes := (heapInUse() - before) / copies
		runtime.KeepAlive(kept)
		t.Logf("%-45s %6d bytes of JSON, %6.0f in memory", each.name, len(each.text), bytes)
		most = max(most, bytes)
	}
	return most
}

func heapInUse() float64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func keepLock(text []byte) (any, error) {
	lock := &v1alpha1.Lock{}
	err := json.Unmarshal(text, lock)
	return rules.Stripped(lock), err
}

func keepJob(text []byte) (any, error) {
	job := &batchv1.Job{}
	err := json.Unmarshal(text, job)
	return jobs.Stripped(job), err
}

// grantedLock is a lock as the façade takes it.
func grantedLock() *v1alpha1.Lock {
	lock := rules.Grant("payments", rules.Acquisition{
		Key: "billing:report:2026-11", Owner: "6b0a5f3e-63a5-4f0f-9a53-1d2c4b5a6978", Reason: "monthly close",
		Holder:    "system:serviceaccount:payments:worker",
		HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-7d9f8b6c5-x2x9q", UID: "0e2e1b5c-3f3c-4a50-8a55-8c2f4a1f5b0e"},
	}, rules.DefaultLimits(), time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	lock.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Lock"}
	lock.UID, lock.ResourceVersion, lock.Generation = "77cf2a0d-7d1e-4b7e-8a7f-5f4c43b3d0c1", "123456789", 1
	lock.CreationTimestamp = metav1.Now()
	return lock
}

func usualShapes() []shape {
	annotated := grantedLock()
	annotated.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1000)}
	annotated.Labels = map[string]string{"app.kubernetes.io/name": "billing", "app.kubernetes.io/managed-by": "argocd"}
	return []shape{
		{"a lock of the façade", asText(grantedLock()), keepLock},
		{"a lock of a manifest", asText(annotated), keepLock},
	}
}

func asText(object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return text
}

// short returns different texts of few characters.
func short(index int) string {
	return "a" + strconv.FormatInt(int64(index), 36)
}

// largestLocks are as large as admission permits, each by another field.
func largestLocks(t *testing.T) []shape {
	t.Helper()
	grow := map[string]func(lock *v1alpha1.Lock, size int){
		"a lock of a long text": func(lock *v1alpha1.Lock, size int) {
			lock.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: strings.Repeat("x", size)}
		},
		"a lock of annotations that are not kept": func(lock *v1alpha1.Lock, size int) {
			lock.Annotations = map[string]string{"example.com/note": strings.Repeat("x", size)}
		},
		"a lock of short labels": func(lock *v1alpha1.Lock, size int) {
			lock.Labels = map[string]string{}
			for i := range size / 8 {
				lock.Labels[short(i)] = ""
			}
		},
		"a lock of owners": func(lock *v1alpha1.Lock, size int) {
			for i := range size / 50 {
				lock.OwnerReferences = append(lock.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "A", Name: short(i), UID: types.UID(short(i))})
			}
		},
		"a lock of guards": func(lock *v1alpha1.Lock, size int) {
			for i := range min(16, size/100) {
				guard := v1alpha1.Guard{Resource: "pods", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{}}}
				for j := range min(16, size/1000) {
					guard.Selector.MatchLabels[short(i*16+j)] = ""
				}
				lock.Spec.Guards = append(lock.Spec.Guards, guard)
			}
		},
		"a lock of guards with expressions": func(lock *v1alpha1.Lock, size int) {
			for i := range min(16, size/100) {
				guard := v1alpha1.Guard{Resource: "pods", Selector: &metav1.LabelSelector{}}
				for j := range min(16, size/1000) {
					guard.Selector.MatchExpressions = append(guard.Selector.MatchExpressions,
						metav1.LabelSelectorRequirement{Key: short(i*16 + j), Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}})
				}
				lock.Spec.Guards = append(lock.Spec.Guards, guard)
			}
		},
	}
	var shapes []shape
	for name, change := range grow {
		text := largestText(func(size int) []byte {
			lock := grantedLock()
			change(lock, size)
			return asText(lock)
		}, func(text []byte) bool { return rules.ValidateSize(len(text)) == nil })
		shapes = append(shapes, shape{name, text, keepLock})
	}
	return shapes
}

// largestText returns the largest text that is permitted.
func largestText(textOf func(size int) []byte, isPermitted func([]byte) bool) []byte {
	const largest = 64 << 10
	size := sort.Search(largest, func(size int) bool { return !isPermitted(textOf(size)) })
	return textOf(size - 1)
}

// largestJobs are as large as admission permits, each by another field.
func largestJobs(t *testing.T) []shape {
	t.Helper()
	grow := map[string]func(job *batchv1.Job, size int){
		"a usual Job": func(*batchv1.Job, int) {},
		"a Job of a long text": func(job *batchv1.Job, size int) {
			job.Annotations[v1alpha1.LockPausedAnnotation] = strings.Repeat("x", size)
		},
		"a Job of short finalizers": func(job *batchv1.Job, size int) {
			for i := range size / 10 {
				job.Finalizers = append(job.Finalizers, "a.b/"+short(i))
			}
		},
	}
	var shapes []shape
	for name, change := range grow {
		text := largestText(func(size int) []byte {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: "payments", Name: "report-28347562", UID: "77cf2a0d-7d1e-4b7e-8a7f-5f4c43b3d0c1", ResourceVersion: "123456789",
				CreationTimestamp: metav1.Now(), Labels: map[string]string{v1alpha1.LockLabel: "true"},
				Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "billing:report"},
			}, Spec: batchv1.JobSpec{Completions: new(int32(1)), Parallelism: new(int32(1))}}
			change(job, size)
			if _, problems := jobs.AdmitCreate(job, jobs.Limits{}, time.Now()); len(problems) > 0 {
				return nil
			}
			return asText(job)
		}, func(text []byte) bool { return text != nil })
		shapes = append(shapes, shape{name, text, keepJob})
	}
	return shapes
}
